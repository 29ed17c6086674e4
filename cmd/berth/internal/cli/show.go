package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/store"
)

// showFlags are the flags of show that are not about numbers of groups.
type showFlags struct {
	all, steps, watch bool
	filter            report.Filter
}

func (f *showFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.all, "all", false, "print lists, logs, trajectories and the output of plugins in full")
	fs.BoolVar(&f.steps, "trajectory", false, "print only the trajectory: what the agent did")
	fs.BoolVar(&f.watch, "watch", false, "print a run again when it changes, or what a trial does, until it ends")
	fs.Var((*selection.Text)(&f.filter.Expression), "select", "list only the trials for which this `EXPRESSION` is true")
}

// check returns an error for flags that do not fit the arguments. table says that
// numbers of groups are wanted.
func (f *showFlags) check(args []string, table bool) error {
	switch {
	case table && (f.all || f.steps || f.watch):
		return errors.New("--all, --trajectory and --watch are about trials, and not about numbers of groups. Leave them out")
	case table:
		return nil
	case len(args) > 3:
		return fmt.Errorf("expected RUN, TRIAL and ATTEMPT, or runs only, got %d arguments, and %q is not a run. Example: berth show last 3f9a2c 2", len(args), args[1])
	case f.watch && len(args) == 0:
		return errors.New("--watch needs a run. Example: berth show last --watch")
	case f.watch && (len(args) > 2 || f.steps):
		return errors.New("--watch is for a run or a trial, without an attempt or --trajectory. Example: berth show last 3f9a2c --watch")
	case f.filter.Expression != "" && len(args) != 1:
		return errors.New("--select needs a run and no trial. Example: berth show last --select 'outcome == \"failed\"'")
	case f.steps && len(args) < 2:
		return errors.New("--trajectory needs a run and a trial. Example: berth show last 3f9a2c --trajectory")
	}
	return nil
}

const showHelp = `Without arguments, lists the runs in ./runs. RUN is a folder, a name below
./runs, or last. TRIAL is the beginning of a trial's id or folder, or the name
of a task with a single trial. ATTEMPT is a number; the default is the accepted
attempt. Only the end of a long list is printed; --all prints all of it.

--select takes an expression over the accepted attempt of each trial, with names
such as outcome, task, tags, score, cost and cell.AXIS
(docs/reference/selection.md).

--by prints the numbers of groups of trials, over one run or over several that
are taken as one. Trials are grouped by the axes of the matrix, cell, run,
dataset, task, tag, category, difficulty, reward (a verifier's score),
integrity, mode, agent_end, outcome, agent, model or environment.
docs/statistics.md defines each number, and says which are refused unless you
say --force.

--watch prints a run again whenever it changes, until no process writes it. The
exit code is 3 if the run ends without being complete. With a trial, --watch
prints what it does, until it ends. With --json, both print a line for each
change. Ctrl-C ends only the watching, not the run.`

func (a *app) showCommand() *cobra.Command {
	f := showFlags{}
	o := tableOf{filter: &f.filter}
	cmd := &cobra.Command{
		Use:     "show [RUN [TRIAL [ATTEMPT]] | RUN ...]",
		Short:   "Show runs, the trials of a run, numbers of runs, or one attempt",
		Long:    showHelp,
		Example: "  berth show last\n  berth show last --select 'outcome == \"failed\"'\n  berth show last --by cell\n  berth show last --by agent,task --table csv\n  berth show last --watch\n  berth show last 3f9a2c\n  berth show last 3f9a2c --trajectory\n  berth show last 3f9a2c --watch\n  berth show last --json | jq .summary.outcomes",
		Args:    cobra.ArbitraryArgs,

		RunE: func(cmd *cobra.Command, args []string) error {
			table, err := o.wanted(cmd, args)
			if err == nil {
				err = f.check(args, table)
			}
			f.filter.All = f.all
			switch {
			case err != nil:
				return err
			case table:
				return a.showTable(args, &o)
			case len(args) == 0:
				return a.showRuns()
			case f.watch && len(args) == 1:
				return a.watchRun(cmd.Context(), args[0], f.filter)
			case len(args) == 1:
				return a.showRun(args[0], f.filter)
			case f.watch:
				return a.followTrial(cmd.Context(), args, f.all)
			default:
				return a.showTrial(args, &f)
			}
		},
	}
	o.register(cmd)
	f.register(cmd)
	return cmd
}

func (a *app) showRuns() error {
	dirs, err := report.Runs(report.RunsDir)
	if err != nil {
		return err
	}
	res := output.Runs{Runs: []output.RunLine{}}
	for _, d := range dirs {
		res.Runs = append(res.Runs, report.Line(d))
	}
	if done, err := a.Answer(res); done {
		return err
	}
	if len(res.Runs) == 0 {
		a.Printf("no runs in ./%s yet. Start one with berth run or berth try.\n", report.RunsDir)
		return nil
	}
	t := terminal.Table{Head: []string{"run", "when", "trials", "outcomes"}, Right: []bool{2: true}}
	for i := range res.Runs {
		l := &res.Runs[i]
		text := l.Error
		if text == "" {
			text = report.Outcomes(l.Outcomes)
			if l.Busy != "" {
				text += " (running: " + l.Busy + ")"
			} else if !l.Complete {
				text += " (incomplete)"
			}
		}
		when := ""
		if !l.Created.IsZero() {
			when = l.Created.Local().Format("2006-01-02 15:04")
		}
		t.Row(terminal.Clean(filepath.Base(l.Dir)), when, strconv.Itoa(l.Planned), terminal.Clean(text))
	}
	t.Write(a.Printer)
	return nil
}

// showRun prints a run: its tables, and the trials that need attention.
func (a *app) showRun(name string, f report.Filter) error {
	dir, err := report.FindRun(name)
	if err != nil {
		return err
	}
	s, err := report.ReadState(dir, f)
	if err != nil {
		return err
	}
	if a.JSON {
		_, err = a.Answer(s.Document())
		return err
	}
	s.Text(a.Printer)
	return nil
}

// watchRun prints a run whenever it changes, until it ends.
func (a *app) watchRun(ctx context.Context, name string, f report.Filter) error {
	dir, err := report.FindRun(name)
	if err != nil {
		return err
	}
	err = (&report.Watcher{P: a.Printer, Dir: dir, Filter: f}).Watch(ctx)
	switch {
	case errors.Is(err, report.ErrNotComplete):
		return &exit{exitIncomplete, fmt.Errorf("%w. Resume it with: berth resume %s", err, report.Display(dir))}
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		a.Notef("no longer watching. The run continues\n")
		return &exit{exitInterrupted, nil}
	}
	return err
}

// chosen is the trial of a run that arguments name.
type chosen struct {
	dir      string
	manifest *store.Manifest
	index    *store.Index
	trial    *store.TrialState
}

// choose finds the trial that RUN and TRIAL name.
func choose(args []string) (c chosen, err error) {
	if c.dir, err = report.FindRun(args[0]); err != nil {
		return c, err
	}
	if c.manifest, c.index, err = store.Read(c.dir); err != nil {
		return c, err
	}
	c.trial, err = report.FindTrial(c.index, args[1])
	return c, err
}

// showTrial prints one attempt of a trial: the accepted one, or the one with
// the given number. f says which part of it.
func (a *app) showTrial(args []string, f *showFlags) error {
	c, err := choose(args)
	if err != nil {
		return err
	}
	dir, m, x, t := c.dir, c.manifest, c.index, c.trial
	if len(args) == 2 && a.JSON {
		_, err = a.Answer(report.Trial(dir, m, x, t))
		return err
	}
	number, err := c.number(args)
	if err != nil {
		return err
	}
	if len(args) == 2 && !f.steps {
		report.TrialHead(a.Printer, m, t, report.Running(dir, x, t, report.Pilots(dir)), number)
	}
	if number == 0 {
		a.Printf("no attempt yet\n")
		return nil
	}
	full, err := report.Attempt(report.Folder(dir, t, number), report.StateOf(x, t, number))
	if err != nil {
		return err
	}
	readers, err := notes.Read(dir)
	if err != nil {
		return err
	}
	full.Notes = readers.Of(t.ID, number)
	if i := slices.IndexFunc(t.Attempts, func(s store.AttemptState) bool { return s.Number == number }); i >= 0 {
		full.Interventions = summary.InterventionsOn(m, x, t, &t.Attempts[i])
	}
	return a.say(full, func() {
		if f.steps {
			report.Trajectory(a.Printer, full.Steps, f.all)
		} else {
			report.AttemptText(a.Printer, full, f.all)
		}
	})
}

// number returns the attempt that a third argument names, or else the accepted or
// the newest one; 0 if there is none.
func (c *chosen) number(args []string) (int, error) {
	t := c.trial
	if len(args) == 3 {
		number, err := strconv.Atoi(args[2])
		if err != nil || !slices.ContainsFunc(t.Attempts, func(s store.AttemptState) bool { return s.Number == number }) {
			return 0, fmt.Errorf("trial %s has no attempt %q; number of attempts: %d", report.Short(t.ID, 12), args[2], len(t.Attempts))
		}
		return number, nil
	}
	if acc := t.Accepted(); acc != nil {
		return acc.Number, nil
	}
	if n := len(t.Attempts); n > 0 {
		return t.Attempts[n-1].Number, nil
	}
	return 0, nil
}

// followTrial prints what happens in a trial until the trial ends. A trial that
// has ended is shown as without --watch.
func (a *app) followTrial(ctx context.Context, args []string, all bool) error {
	c, err := choose(args)
	if err != nil {
		return err
	}
	dir, m, x, t := c.dir, c.manifest, c.index, c.trial
	f := &report.Follower{P: a.Printer, Dir: dir, Trial: t.ID, All: all}
	over, err := f.Over()
	switch {
	case a.JSON:
		err = f.Follow(ctx)
	case over || err != nil:
		err = errors.Join(err, a.showTrial(args, &showFlags{all: all}))
	default:
		report.TrialHead(a.Printer, m, t, report.Running(dir, x, t, report.Pilots(dir)), 0)
		err = f.Follow(ctx)
	}
	switch {
	case errors.Is(err, report.ErrNobodyRuns):
		return &exit{exitIncomplete, fmt.Errorf("%w. Resume the run with: berth resume %s", err, report.Display(dir))}
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		a.Notef("no longer watching. The run continues\n")
		return &exit{exitInterrupted, nil}
	}
	return err
}
