package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/core/cli/answer"
	"github.com/berth-eval/berth/core/cli/out"
	"github.com/berth-eval/berth/core/cli/show"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

func (a *app) showCommand() *cobra.Command {
	all, steps := false, false
	cmd := &cobra.Command{
		Use:   "show [RUN [TRIAL [ATTEMPT]]]",
		Short: "Show runs, the trials of a run, or one attempt",
		Long: `Without arguments lists the runs in ./runs. RUN is a folder, a name below
./runs, or last. TRIAL is the beginning of a trial's id or folder, or the name
of a task that has one trial. ATTEMPT is its number; without it the accepted one
is shown.`,
		Example: "  berth show last\n  berth show last hello-file\n  berth show last 3f9a2c --all\n  berth show last hello-file --trajectory\n  berth show last --json | jq .summary.outcomes",
		Args:    cobra.MaximumNArgs(3),

		ValidArgsFunction: completeRun,
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case steps && len(args) < 2:
				return errors.New("--trajectory shows one trial: name the run and the trial, as in berth show last hello-file --trajectory")
			case len(args) == 0:
				return a.showRuns()
			case len(args) == 1:
				return a.showRun(args[0], all)
			default:
				return a.showTrial(args, all, steps)
			}
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "do not cut lists, logs and trajectories")
	cmd.Flags().BoolVar(&steps, "trajectory", false, "show what the agent did, for reading, and nothing else")
	return cmd
}

// completeRun offers the runs in ./runs, and the trials of one.
func completeRun(_ *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	var names []string
	switch len(args) {
	case 0:
		dirs, err := show.Runs(show.RunsDir)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names = append(names, "last")
		for _, d := range dirs {
			names = append(names, filepath.Base(d))
		}
	case 1:
		dir, err := show.FindRun(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		m, err := store.ReadManifest(dir)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for i := range m.Trials {
			if strings.HasPrefix(m.Trials[i].Dir, begin) {
				names = append(names, m.Trials[i].Dir)
			}
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

func (a *app) showRuns() error {
	dirs, err := show.Runs(show.RunsDir)
	if err != nil {
		return err
	}
	res := answer.Runs{Runs: []answer.RunLine{}}
	for _, d := range dirs {
		res.Runs = append(res.Runs, show.Line(d))
	}
	if done, err := a.Answer(res); done {
		return err
	}
	if len(res.Runs) == 0 {
		a.Printf("no run in ./%s yet: start one with berth run or berth try\n", show.RunsDir)
		return nil
	}
	t := out.Table{Head: []string{"run", "when", "trials", "outcomes"}, Right: []bool{2: true}}
	for i := range res.Runs {
		l := &res.Runs[i]
		text := l.Error
		if text == "" {
			text = show.Outcomes(l.Outcomes)
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
		t.Row(out.Clean(filepath.Base(l.Dir)), when, strconv.Itoa(l.Planned), out.Clean(text))
	}
	t.Write(a.Out, a.Color)
	return nil
}

// showRun prints a run: its tables, and what needs a look.
func (a *app) showRun(name string, all bool) error {
	dir, err := show.FindRun(name)
	if err != nil {
		return err
	}
	m, x, err := store.Read(dir)
	if err != nil {
		return err
	}
	if a.JSON {
		_, err = a.Answer(show.Run(dir, m, x))
		return err
	}
	s := run.Summarize(m, x)
	a.Printf("%s  %s  planned %s\n\n", out.Paint(a.Color, out.Bold, out.Clean(m.Header.Experiment)), show.Display(dir),
		m.Header.Created.Local().Format("2006-01-02 15:04:05"))
	show.Summary(a.Printer, s)
	if w := show.Writing(x); w != nil {
		a.Printf("being written by %s since %s\n", w.Process, w.Time.Local().Format("15:04:05"))
	}
	a.Printf("\n")
	show.Trials(a.Printer, m, x, all)
	a.Printf("\none of them: berth show %s TRIAL\n", show.Display(dir))
	return nil
}

// showTrial prints one attempt of a trial: the accepted one unless a number
// says which. steps prints its trajectory alone.
func (a *app) showTrial(args []string, all, steps bool) error {
	dir, err := show.FindRun(args[0])
	if err != nil {
		return err
	}
	m, x, err := store.Read(dir)
	if err != nil {
		return err
	}
	t, err := show.FindTrial(x, args[1])
	if err != nil {
		return err
	}
	if len(args) == 2 && a.JSON {
		_, err = a.Answer(show.Trial(dir, m, t, show.Writing(x) != nil))
		return err
	}
	number := 0
	if len(args) == 3 {
		number, err = strconv.Atoi(args[2])
		if err != nil || !slices.ContainsFunc(t.Attempts, func(s store.AttemptState) bool { return s.Number == number }) {
			return fmt.Errorf("trial %s has no attempt %q: it has %d", t.ID[:12], args[2], len(t.Attempts))
		}
	} else if acc := t.Accepted(); acc != nil {
		number = acc.Number
	} else if n := len(t.Attempts); n > 0 {
		number = t.Attempts[n-1].Number
	}
	if len(args) == 2 && !steps {
		show.TrialHead(a.Printer, m, t, number)
	}
	if number == 0 {
		a.Printf("no attempt yet\n")
		return nil
	}
	full, err := show.Attempt(show.Folder(dir, t, number), show.StateOf(t, number, show.Writing(x) != nil))
	if err != nil {
		return err
	}
	if done, err := a.Answer(full); done {
		return err
	}
	if steps {
		show.Trajectory(a.Printer, full.Steps, all)
		return nil
	}
	show.AttemptText(a.Printer, full, all)
	return nil
}
