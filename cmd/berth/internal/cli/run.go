package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/images"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/core/trial"
)

func (a *app) runCommand() *cobra.Command {
	var (
		ef experiment.Flags
		rf runFlags
		to string

		replay      string
		prepareOnly bool
		detach      bool
	)
	cmd := &cobra.Command{
		Use:   "run [PATH]",
		Short: "Run an experiment",
		Long: `Runs an experiment and stores everything in a new folder below ./runs. PATH is a
file, or a folder whose *.hcl files are read; the default is the current folder.
Ctrl-C stops the run cleanly, and it can be resumed.

Exit codes: 0 the run is complete, whatever the scores; 1 complete, but a trial
has an error outcome or a --require rule is not met; 2 nothing was started; 3
incomplete, can be resumed; 130 interrupted.`,
		Example: "  berth run experiment.hcl\n  berth run . --in-flight 8 --require \"agent=oracle: passed = planned\"",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if replay != "" {
				var err error
				if ef.Replay, err = report.FindRun(replay); err != nil {
					return fmt.Errorf("--replay: %w", err)
				}
			}
			l, err := a.load(cmd.Context(), experimentPath(args), &ef)
			if err != nil {
				return err
			}
			defer l.Close()
			if prepareOnly {
				return a.prepare(cmd.Context(), l)
			}
			if err = a.startable(l); err != nil {
				return err
			}
			if err = schedulerThere(l); err != nil {
				return err
			}
			if detach && l.Experiment.Executor.Kind != "slurm" {
				return errors.New("--detach needs a scheduler that runs the coordinator: write an executor \"slurm\" block")
			}
			j, err := a.newRun(l, &rf, to, a.header(l, &ef))
			if err != nil {
				return err
			}
			a.Notef("%s: %s, into %s\n", l.Experiment.Name, terminal.Count(len(l.Plan.Trials), "trial", "trials"), shownFolder(j.store.Dir))
			if detach {
				return a.detach(cmd.Context(), j)
			}
			return a.execute(cmd.Context(), j)
		},
	}
	ef.Register(cmd)
	rf.register(cmd)
	cmd.Flags().BoolVar(&prepareOnly, "prepare-only", false, "only pull and build the images of the tasks, and start nothing")
	cmd.Flags().BoolVar(&detach, "detach", false, "run the coordinator in a job of the cluster, and return (docs/cluster.md)")
	cmd.Flags().StringVar(&replay, "replay", "", "answer requests to models with what this `RUN` recorded, without asking a provider")
	cmd.Flags().StringVar(&to, "runs", report.RunsDir, "create the folder of the run in `DIR`")
	return cmd
}

// prepare pulls and builds the images of a plan. A key of a model may be missing
// here; an experiment or a plan with errors may not be.
func (a *app) prepare(ctx context.Context, l *experiment.Loaded) error {
	if l.Plan == nil {
		return a.startable(l) // prints what is wrong with the experiment
	}
	var mu sync.Mutex
	prepared, err := images.Prepare(ctx, l.Plan, trial.PluginsOf(l.Host), func(image, line string) {
		mu.Lock()
		defer mu.Unlock()
		a.Notef("%s: %s\n", report.Display(image), terminal.Clean(line))
	})
	if err != nil {
		return err
	}
	failed, res := 0, &output.Prepare{Images: prepared}
	for _, im := range prepared {
		if im.Error != "" {
			failed++
		}
	}
	if err := a.say(res, func() { a.sayPrepared(res) }); err != nil {
		return err
	}
	if failed > 0 {
		return &exit{exitErrors, nil}
	}
	return nil
}

func (a *app) sayPrepared(res *output.Prepare) {
	for _, im := range res.Images {
		name := im.Ref
		if name == "" {
			name = im.Build
		}
		switch {
		case im.Error != "":
			a.Printf("%s  %s\n         %s\n", terminal.Paint(a.Color, terminal.Bad, "missing"), terminal.Clean(name), terminal.Clean(im.Error))
		case im.Digest == "":
			a.Printf("ok       environment %s prepares no images\n", im.Environment)
		default:
			a.Printf("ok       %s %s (%s, %s)\n", terminal.Clean(name), im.Digest, im.Environment, terminal.Count(len(im.Tasks), "task", "tasks"))
		}
	}
}

// newRun creates the folder of a new run of an experiment in the folder runs.
func (a *app) newRun(l *experiment.Loaded, f *runFlags, runs string, h store.Header) (*job, error) {
	m := l.Plan.Manifest(h)
	// Otherwise the user would find out only after the run.
	if err := f.possible(m); err != nil {
		return nil, err
	}
	s, err := create(runs, m, l)
	return &job{Loaded: l, flags: f, store: s}, err
}

// create creates the folder of a new run in the folder runs.
func create(runs string, m *store.Manifest, l *experiment.Loaded) (*store.Run, error) {
	s, err := store.Create(runs, m, files(l.Experiment))
	if _, there := errors.AsType[*node.FolderError](err); err != nil && !there {
		err = fmt.Errorf("%w: choose another folder with --runs", err)
	}
	return s, err
}

// shownFolder names a folder that was made for a run, and says who can read it.
func shownFolder(dir string) string {
	name := report.Display(dir)
	for at, want := dir, fs.FileMode(0o005); ; at, want = filepath.Dir(at), 0o001 {
		info, err := os.Stat(at)
		switch {
		case err != nil || info.Mode()&want != want:
			return name
		case at == filepath.Dir(at):
			return name + " (all users of this machine can read it)"
		}
	}
}
