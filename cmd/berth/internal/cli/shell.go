package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
)

// person is the plugin that a person works through.
const person = "human"

// unlimited is the time limit of a shell that is not graded.
const unlimited = 30 * 24 * time.Hour

// shellFlags are those of `berth shell`.
type shellFlags struct {
	environment, runs string
	verify, trust     bool
	surface           bool
}

func (a *app) shellCommand() *cobra.Command {
	var f shellFlags
	var ef experiment.Flags
	cmd := &cobra.Command{
		Use:   "shell DIR | RUN TRIAL [ATTEMPT]",
		Short: "Open a terminal in a sandbox of a task or of an attempt",
		Long: `Opens a terminal in a new sandbox of the task in DIR, or of the task of a trial,
with the files of the attempt if they were kept. RUN, TRIAL and ATTEMPT are
those of berth show. Leave the shell with Ctrl-D; the sandbox is then removed.

With --verify, you work as an agent does: the time limit of the task applies,
the tests run at the end, and the run is stored. With --surface, you work on the
surface of the task, such as a game, on a page in a browser on this machine. See
docs/human.md.`,
		Example: "  berth shell tasks/hello\n  berth shell tasks/hello --verify\n  berth shell last 3f9a2c",
		Args:    cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 && cmd.Flags().Changed("environment") {
				return errors.New("--environment is for a task: an attempt has that of its run")
			}
			return a.shell(cmd.Context(), args, &f, &ef)
		},
	}
	ef.Register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.environment, "environment", defaultEnvironment, "`ENVIRONMENT` plugin for a task")
	fs.BoolVar(&f.verify, "verify", false, "run the tests at the end, and store the run")
	fs.StringVar(&f.runs, "runs", report.RunsDir, "with --verify, create the folder of the run in `DIR`")
	fs.BoolVar(&f.surface, "surface", false, "work on the surface of the task, on a page in a browser, instead of a terminal")
	fs.BoolVar(&f.trust, "trust", false, "continue although others could have changed the run folder")
	return cmd
}

// terminalOf returns the name of the terminal that this process reads from.
func terminalOf(f *os.File) (string, error) {
	if !term.IsTerminal(int(f.Fd())) {
		return "", errors.New("the standard input is not a terminal: start the command in one, without a pipe")
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return "", fmt.Errorf("find the name of the terminal: %w", err)
	}
	return name, nil
}

// shell opens a terminal.
func (a *app) shell(ctx context.Context, args []string, f *shellFlags, ef *experiment.Flags) error {
	tty, err := terminalOf(os.Stdin)
	if err != nil {
		return err
	}
	c := map[string]any{"terminal": tty, "words": f.verify}
	if f.surface {
		c = map[string]any{"terminal": tty, "surface": true}
	}
	ef.Change = func(e *config.Experiment) { atWork(e, c, f.verify) }
	var l *experiment.Loaded
	if len(args) == 1 {
		l, err = a.shellOfTask(ctx, args[0], f, ef)
	} else {
		l, err = a.shellOfAttempt(ctx, args, c, f, ef)
	}
	if err != nil {
		return err
	}
	defer l.Close()
	if err = a.startable(l); err != nil {
		return err
	}
	if len(l.Plan.Trials) != 1 {
		return fmt.Errorf("there are %d tasks at or below %s, and a terminal is in the sandbox of one: name one of them", len(l.Plan.Trials), args[0])
	}
	return a.openShell(ctx, l, f, ef)
}

// atWork lets a person be the agent of every cell, in one repetition.
func atWork(e *config.Experiment, c map[string]any, verify bool) {
	e.Repeat, e.Executor.Kind, e.Retry.Max = 1, "", 0
	for _, one := range e.Cells {
		b, _ := json.Marshal(c) //nolint:errcheck // texts always marshal
		one.Agent = cell.Agent{Label: person, Plugin: person, Config: cell.NewValues(b, nil)}
		one.Model, one.Limits.MaxSteps = nil, 0
		if !verify {
			one.Verifiers, one.User, one.Limits = nil, nil, cell.Limits{AgentTime: unlimited}
		}
	}
}

func (a *app) shellOfTask(ctx context.Context, dir string, f *shellFlags, ef *experiment.Flags) (*experiment.Loaded, error) {
	file, remove, err := a.tryFile(dir, &tryFlags{agent: person, environment: f.environment, repeat: 1})
	if err != nil {
		return nil, err
	}
	defer remove()
	above, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return a.loadWith(ctx, file, ef, experiment.Options{LockAbove: above})
}

// shellOfAttempt plans the task of a trial, in the environment of its cell.
func (a *app) shellOfAttempt(ctx context.Context, args []string, c map[string]any, f *shellFlags, ef *experiment.Flags) (*experiment.Loaded, error) {
	of, err := choose(args)
	if err != nil {
		return nil, err
	}
	number, err := of.number(args)
	if err != nil {
		return nil, err
	}
	if number > 0 {
		files := filepath.Join(report.Folder(of.dir, of.trial, number), record.FilesFile)
		if _, err = os.Lstat(files); err == nil && !f.surface {
			c["files"] = files
		} else if !f.surface {
			a.Notef("note: the files of attempt %d were not kept (keep in the experiment): the sandbox is a new one of the task\n", number)
		}
	}
	change := ef.Change
	ef.Change = func(e *config.Experiment) {
		if at := of.trial.Cell; at < len(e.Cells) {
			e.Cells = e.Cells[at : at+1]
			e.Cells[0].Index = 0
		}
		change(e)
	}
	_, _, l, err := a.loadRun(ctx, of.dir, ef, &resumeFlags{trust: f.trust})
	if err != nil || l.Plan == nil {
		return l, err
	}
	l.Plan.Trials = slices.DeleteFunc(l.Plan.Trials, func(t plan.Trial) bool { return t.Task != of.trial.Task || t.Dataset != of.trial.Dataset })
	l.Plan.Problems = slices.DeleteFunc(l.Plan.Problems, func(p plan.Problem) bool { return len(p.Tasks) > 0 && !slices.Contains(p.Tasks, of.trial.Task) })
	return l, nil
}

// openShell runs the one trial of a plan, whose agent is the person.
func (a *app) openShell(ctx context.Context, l *experiment.Loaded, f *shellFlags, ef *experiment.Flags) error {
	runs := f.runs
	if !f.verify {
		var err error
		if runs, err = tempDir("berth-shell-"); err != nil {
			return err
		}
		defer os.RemoveAll(runs)
	}
	j, err := a.newRun(l, &runFlags{lines: true}, runs, a.header(l, ef))
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	left := false
	j.watch = func(e run.Event) {
		over := e.Kind == run.Live && e.Live.Type == record.EventPhaseEnd && e.Live.Phase == record.PhaseTurn && e.Live.Error == ""
		if over && !f.verify { // there is nothing to grade
			left = true
			leave()
		}
	}
	if f.verify {
		return a.execute(ctx, j)
	}
	_, err = a.executeAndShow(ctx, j)
	index := j.store.Index()
	if err = errors.Join(err, j.store.Close()); err != nil || left {
		return err
	}
	for _, t := range index.Trials {
		if at := t.Accepted(); at != nil && at.Result != nil && at.Result.Error != "" {
			return &exit{exitErrors, errors.New(at.Result.Error)}
		}
	}
	return ctx.Err()
}
