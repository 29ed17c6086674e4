package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/store"
)

// ctlStatus is the action of berth ctl that changes nothing.
const ctlStatus = "status"

func (a *app) ctlCommand() *cobra.Command {
	var q control.Request
	cmd := &cobra.Command{
		Use:   "ctl RUN [ACTION] [ARG]...",
		Short: "Control a running experiment, from another terminal",
		Long: `Asks the process that runs RUN for a change. Only the user who started it can do
that, on the same machine. The actions are:

  status               print the state of the run; this is the default
  pause                start no further attempt; those in progress continue
  drain                the same, and the run stops when they have ended
  continue             start attempts again
  set LIMIT=NUMBER...  change limits of the run: in_flight, cost_usd, tokens
                       or requests; "none" removes a budget
  cancel TRIAL         cancel a trial, or all trials of a cell with --cell
  end-turn TRIAL       end the agent's turn now, and grade its work so far

Trials that were not run or were cancelled run again when the run is resumed. A
larger budget needs --yes. Each change is recorded in the run with the user, the
time and the reason; those that can change results mark the run
(docs/running.md).`,
		Example: "  berth ctl last\n  berth ctl last pause --why \"the disk is nearly full\"\n  berth ctl last set cost_usd=20 --yes\n  berth ctl last cancel --cell agent=nop\n  berth ctl last end-turn 3f9a2c --why \"it repeats one command\"",
		Args:    cobra.MinimumNArgs(1),

		RunE: func(cmd *cobra.Command, args []string) error {
			if q.Action = ctlStatus; len(args) > 1 {
				q.Action = args[1]
			}
			if err := ctlArgs(&q, args[min(2, len(args)):]); err != nil {
				return err
			}
			return a.ctl(cmd.Context(), args[0], q)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&q.Why, "why", "", "keep this `TEXT` in the record; end-turn needs it")
	fs.StringVar(&q.Cell, "cell", "", "cancel all trials of the cell with this `KEY`")
	fs.BoolVar(&q.Yes, "yes", false, "allow a larger budget")
	return cmd
}

// ctlArgs reads the arguments after the action.
func ctlArgs(q *control.Request, args []string) (err error) {
	switch {
	case q.Action == control.Set:
		q.Set, err = ctlLimits(args)
		args = nil
	case len(args) > 0 && (q.Action == control.Cancel || q.Action == control.EndTurn):
		q.Trial, args = args[0], args[1:]
	}
	switch {
	case err != nil:
		return err
	case q.Action == ctlStatus && (q.Why != "" || q.Cell != "" || q.Yes):
		return errors.New("status changes nothing: leave out --why, --cell and --yes")
	case q.Action != ctlStatus:
		err = q.Check()
	}
	if err == nil && len(args) > 0 {
		err = fmt.Errorf("%s: unexpected argument %q", q.Action, args[0])
	}
	return err
}

// ctlLimits reads limits such as in_flight=8.
func ctlLimits(args []string) (map[string]*float64, error) {
	set := map[string]*float64{}
	for _, arg := range args {
		name, text, ok := strings.Cut(arg, "=")
		if !ok || !slices.Contains(control.Limits, name) {
			return nil, fmt.Errorf("set %s: expected LIMIT=NUMBER with one of %s. Example: berth ctl last set in_flight=8", arg, strings.Join(control.Limits, ", "))
		}
		if _, twice := set[name]; twice {
			return nil, fmt.Errorf("set: %s is there twice", name)
		}
		if set[name] = nil; text == "none" {
			continue
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, fmt.Errorf("set %s: %q is not a number", arg, text)
		}
		set[name] = &n
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("set needs LIMIT=NUMBER with one of %s. Example: berth ctl last set in_flight=8", strings.Join(control.Limits, ", "))
	}
	return set, nil
}

// ctl asks the process of a run, and prints the answer.
func (a *app) ctl(ctx context.Context, name string, q control.Request) error {
	dir, err := report.FindRun(name)
	if err != nil {
		return err
	}
	c, err := control.Find(dir)
	var status *control.Status
	answer := &control.Answer{}
	switch {
	case err != nil:
	case q.Action == ctlStatus:
		status, err = c.Status(ctx)
	default:
		answer, err = c.Do(ctx, q)
		status = &answer.Status
	}
	if errors.Is(err, control.ErrNoProcess) {
		return notGoingOn(dir, err)
	}
	if err != nil {
		return &exit{exitErrors, err}
	}
	if q.Action == ctlStatus {
		return a.say(status, func() { a.sayStatus(status) })
	}
	return a.say(answer, func() {
		a.Printf("%s\n", terminal.Clean(answer.Did))
		if status.State != control.Running {
			a.Printf("%s: %s\n", status.State, terminal.Clean(status.Why))
		}
	})
}

// notGoingOn says why no process answers for the run in dir.
func notGoingOn(dir string, err error) error {
	m, x, unread := store.Read(dir)
	if unread != nil {
		return unread
	}
	display := report.Display(dir)
	if w := x.Writing(); w != nil {
		err = fmt.Errorf("%s is in use by berth with %s, which does not answer here: %w. Give the command on that machine, as the user who started it", display, w.Process, err)
	} else if summary.Of(m, x).Complete {
		err = fmt.Errorf("%s is over: there is nothing to control", display)
	} else {
		err = fmt.Errorf("%s is not running: it ended before it was complete. Resume it with berth resume %s", display, display)
	}
	return &exit{exitErrors, err}
}

// sayStatus prints the state of a run.
func (a *app) sayStatus(s *control.Status) {
	a.Printf("%s: %s", report.Display(s.Dir), s.State)
	if s.Why != "" {
		a.Printf(" (%s)", terminal.Clean(s.Why))
	}
	a.Printf("\n%d of %s done, %d in progress, %d not begun; pid %d\n\n", max(0, s.Planned-s.InProgress-s.Left), terminal.Count(s.Planned, "trial", "trials"), s.InProgress, s.Left, s.PID)
	t := terminal.Table{Head: []string{"limit", "used", "of"}, Right: []bool{false, true, true}}
	for _, l := range s.Limits {
		most := "none"
		if l.Most != nil {
			most = strconv.FormatFloat(*l.Most, 'f', -1, 64)
		}
		t.Row(l.Name, strconv.FormatFloat(l.Used, 'f', -1, 64), most)
	}
	t.Write(a.Printer)
	if len(s.Attempts) == 0 {
		return
	}
	const listed = 40
	a.Printf("\n")
	t = terminal.Table{Head: []string{"trial", "task", "cell", "attempt", "phase", "steps", "for"}, Right: []bool{false, false, false, true, false, true, true}}
	for _, at := range s.Attempts[:min(listed, len(s.Attempts))] {
		t.Row(report.Short(at.Trial, 12), terminal.Clean(at.Task), terminal.Clean(at.Cell), strconv.Itoa(at.Attempt), terminal.Clean(string(at.Phase)), strconv.Itoa(at.Steps),
			terminal.Seconds(time.Since(at.Began)))
	}
	t.Write(a.Printer)
	if more := s.InProgress - listed; more > 0 {
		a.Printf("and %d more: --json lists up to 1,000\n", more)
	}
}
