package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/attest"
	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/store"
)

// attestFlags are the user's choices for berth attest.
type attestFlags struct {
	environment string
	attacks     []string
	expect      string // file with the expected results; empty: the documented ones
	tasks       string // write the tasks there, and run nothing
	runs        string
}

func (a *app) attestCommand() *cobra.Command {
	var (
		rf runFlags
		af attestFlags
	)
	cmd := &cobra.Command{
		Use:   "attest",
		Short: "Run the attack suite on this machine and check its results",
		Long: `Runs agents that try to pass without solving their task, in each verification
mode of an environment. For each attack it prints whether it was held (no
reward), detected (a reward, and the result says that it is exposed or violated)
or not held (a reward that counts as checked). Each attack first runs in a
harness without guards, where it must succeed. The control is a solution that
does the work.

The results are compared with the table in docs/security.md. The exit code is 1
if one differs, in either direction, or if an attack does not succeed without
guards. Both runs are kept, and berth show can print them.`,
		Example: "  berth attest\n  berth attest --environment podman\n  berth attest --attack 'R*' --attack t6-replaced-tool",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.attest(cmd.Context(), &af, &rf)
		},
	}
	fs := cmd.Flags()
	rf.given = fs
	fs.IntVar(&rf.inFlight, "in-flight", 0, "`NUMBER` of attempts at the same time (default: twice the number of processors)")
	fs.BoolVar(&rf.noLive, "no-live", false, "print progress as lines, also on a terminal")
	fs.StringVar(&af.environment, "environment", defaultEnvironment, "`ENVIRONMENT` plugin")
	fs.StringArrayVar(&af.attacks, "attack", nil, "only attacks of this name, or for this line of the catalogue, or those like 'R*': `PATTERN`; may be repeated")
	fs.StringVar(&af.expect, "expect", "", "compare with this `FILE` instead, which is one like examples/attacks/attacks.yaml")
	fs.StringVar(&af.tasks, "write-tasks", "", "write the tasks and experiments into the empty folder `DIR`, and run nothing")
	fs.StringVar(&af.runs, "runs", report.RunsDir, "create the folders of the runs in `DIR`")
	return cmd
}

func (a *app) attest(ctx context.Context, f *attestFlags, rf *runFlags) error {
	if _, err := rf.requirements(); err != nil {
		return err
	}
	if rf.inFlight == 0 {
		rf.inFlight = 2 * runtime.NumCPU() // attacks and their tests wait most of the time
	}
	c, err := f.catalogue()
	if err != nil {
		return err
	}
	if c, err = c.Select(f.attacks); err != nil {
		return err
	}
	sandboxd, err := sandboxdPath()
	if err != nil {
		return err
	}
	dir, err := f.folder()
	if err != nil {
		return err
	}
	if f.tasks == "" {
		defer os.RemoveAll(dir)
	}
	s, err := attest.New(ctx, c, f.environment, dir, filepath.Dir(sandboxd))
	if err != nil {
		return err
	}
	defer s.Close()
	if f.tasks != "" {
		return a.attestTasks(s)
	}
	res, err := a.attack(ctx, s, f, rf)
	if err != nil {
		return err
	}
	if done, err := a.Answer(res); err != nil {
		return err
	} else if !done {
		a.sayAttest(res)
	}
	if len(res.Differences) > 0 {
		return &exit{exitErrors, nil}
	}
	return nil
}

// catalogue reads the attacks and what is expected of them.
func (f *attestFlags) catalogue() (*attest.Catalogue, error) {
	if f.expect == "" {
		return attest.Read()
	}
	c, err := attest.ReadFrom(f.expect)
	if err != nil {
		return nil, fmt.Errorf("--expect: %w", err)
	}
	return c, nil
}

// folder is the empty folder of the suite.
func (f *attestFlags) folder() (string, error) {
	if f.tasks == "" {
		dir, err := tempDir("berth-attest-")
		if err != nil {
			return "", fmt.Errorf("make a folder for temporary files: %w", err)
		}
		return dir, nil
	}
	dir, err := filepath.Abs(f.tasks)
	if err != nil {
		return "", err
	}
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		return "", fmt.Errorf("%s is not empty: choose another folder with --write-tasks", f.tasks)
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// attestTasks writes both experiments beside the tasks.
func (a *app) attestTasks(s *attest.Suite) error {
	unguarded, err := s.Unguarded()
	if err != nil {
		return err
	}
	guarded, err := s.Guarded(nil)
	if err != nil {
		return err
	}
	if done, err := a.Answer(output.Init{Files: []string{unguarded, guarded}}); done {
		return err
	}
	a.Printf("without guards:  berth run %s\nin all modes:    berth run %s\n", report.Display(unguarded), report.Display(guarded))
	return nil
}

// attack runs the suite without guards, and then in all modes.
func (a *app) attack(ctx context.Context, s *attest.Suite, f *attestFlags, rf *runFlags) (*output.Attest, error) {
	began := time.Now()
	file, err := s.Unguarded()
	if err != nil {
		return nil, err
	}
	unguarded, err := a.attestRun(ctx, file, f, rf)
	if err != nil {
		return nil, err
	}
	damages, err := s.ReadUnguarded(unguarded)
	if err != nil {
		return nil, err
	}
	var missing []string
	for i := range s.Catalogue.Attacks {
		at := &s.Catalogue.Attacks[i]
		if at.Unguarded == attest.OnHost {
			if damages[at.Name], err = s.TryOnHost(ctx, at); err != nil {
				return nil, err
			}
		}
		if damages[at.Name].Missing != "" {
			missing = append(missing, at.Name)
		}
	}
	if file, err = s.Guarded(missing); err != nil {
		return nil, err
	}
	guarded, err := a.attestRun(ctx, file, f, rf)
	if err != nil {
		return nil, err
	}
	res, err := s.ReadGuarded(guarded, damages)
	if err != nil {
		return nil, err
	}
	res.Unguarded, res.Seconds = unguarded, time.Since(began).Seconds()
	return res, nil
}

// attestRun executes an experiment of the suite and returns the folder of its
// run.
func (a *app) attestRun(ctx context.Context, file string, f *attestFlags, rf *runFlags) (string, error) {
	return a.madeRun(ctx, file, &made{&experiment.Flags{}, f.runs, rf})
}

// made says how to run an experiment that the program wrote itself.
type made struct {
	experiment *experiment.Flags
	runs       string // folder that the folder of the run is created in
	flags      *runFlags
}

// madeRun executes an experiment that the program wrote, and returns the folder
// of its run.
func (a *app) madeRun(ctx context.Context, file string, how *made) (string, error) {
	ef, rf := how.experiment, how.flags
	l, err := a.load(ctx, file, ef)
	if err != nil {
		return "", err
	}
	defer l.Close()
	// The user wrote none of this, and need not hear what can be run all the same.
	l.Diagnostics = slices.DeleteFunc(l.Diagnostics, func(d config.Diagnostic) bool { return d.Severity == config.Warning })
	if l.Diagnostics, err = ofFlags(file, l.Diagnostics); err != nil {
		return "", err
	}
	if err = a.startable(l); err != nil {
		return "", err
	}
	m := l.Plan.Manifest(a.header(l, ef))
	s, err := store.Create(how.runs, m, files(l.Experiment))
	if err != nil {
		return "", elsewhere(err)
	}
	a.Notef("%s: %s, into %s\n", l.Experiment.Name, terminal.Count(len(l.Plan.Trials), "trial", "trials"), report.Display(s.Dir))
	result, err := a.executeAndShow(ctx, &job{Loaded: l, flags: rf, store: s})
	counted := summary.Of(m, s.Index())
	err = errors.Join(err, result.Broken, writeSummary(s, counted), s.Close())
	switch {
	case ctx.Err() != nil:
		return "", &exit{exitInterrupted, nil}
	case err != nil:
		return "", &exit{exitIncomplete, err}
	case !counted.Complete:
		return "", &exit{exitIncomplete, fmt.Errorf("the run %s is not complete: %s", report.Display(s.Dir), result.Stopped)}
	}
	return s.Dir, nil
}

// sayAttest prints the table.
func (a *app) sayAttest(res *output.Attest) {
	t := terminal.Table{Head: append([]string{"attack", "catalogue", "no guards"}, attest.Modes...)}
	for i := range res.Attacks {
		at := &res.Attacks[i]
		row := []string{at.Name, strings.Join(at.IDs, " "), "failed"}
		switch {
		case at.Missing != "":
			row[2] = "needs " + terminal.Clean(at.Missing)
		case at.Control:
			row[1], row[2] = "control", "passed"
		case at.Unguarded:
			row[2] = "succeeded"
		}
		for _, m := range at.Modes {
			text := m.Result
			if m.Result != m.Expected {
				text += " (!)"
			}
			row = append(row, text)
		}
		t.Row(row...)
	}
	t.Write(a.Printer)
	a.Printf("\n")
	for _, d := range res.Differences {
		a.Printf("%s %s\n", terminal.Paint(a.Color, terminal.Bad, "different:"), terminal.Clean(d))
	}
	if len(res.Differences) == 0 {
		a.Printf("%s on %s, as documented", terminal.Count(len(res.Attacks)-1-res.Skipped, "attack", "attacks"), terminal.Clean(res.Environment))
	} else {
		a.Printf("%s from what is documented, on %s", terminal.Count(len(res.Differences), "difference", "differences"), terminal.Clean(res.Environment))
	}
	if res.Skipped > 0 {
		a.Printf(" (%s cannot be made here)", terminal.Count(res.Skipped, "attack", "attacks"))
	}
	a.Printf(", in %.0f s\nwithout guards: berth show %s\nin all modes:   berth show %s\n", res.Seconds, report.Display(res.Unguarded), report.Display(res.Run))
}
