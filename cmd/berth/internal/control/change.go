package control

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/store"
)

// maxWhy is the largest length of a reason in bytes.
const maxWhy = 1000

// change is one change: what is recorded of it, and its effect.
type change struct {
	*store.Intervention
	did  string // a sentence, such as: paused the run
	more string // for the answer alone
}

// change makes one change, records it and returns a sentence about what was done. An error
// says why nothing was changed, or that it could not be recorded.
func (s *Server) change(q *Request, uid int) (string, error) {
	if err := q.Check(); err != nil {
		return "", err
	}
	c := &change{Intervention: &store.Intervention{Action: strings.ReplaceAll(q.Action, "-", "_"), User: NameOf(uid), UID: uid, Why: q.Why}}
	s.doing.Lock()
	defer s.doing.Unlock()
	if err := s.effect(q, c); err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s (uid %d) %s", c.User, c.UID, c.did)
	if c.Why != "" {
		text += ": " + c.Why
	}
	s.o.Say(text)
	if err := s.o.Store.Intervene(text, c.Intervention); err != nil {
		return "", fmt.Errorf("it was done, and could not be recorded: %w", err)
	}
	return c.did + c.more, nil
}

// Check returns what is wrong with a request, whatever the run is.
func (q *Request) Check() error {
	switch {
	case !slices.Contains(Actions, q.Action):
		return fmt.Errorf("unknown action %q: choose from %s", q.Action, strings.Join(Actions, ", "))
	case len(q.Why) > maxWhy || !utf8.ValidString(q.Why):
		return fmt.Errorf("the reason must be text of at most %d bytes", maxWhy)
	case (q.Trial != "" || q.Cell != "") && q.Action != Cancel && q.Action != EndTurn:
		return fmt.Errorf("%s is about the whole run: leave out the trial and the cell", q.Action)
	case q.Action == Cancel && (q.Trial == "") == (q.Cell == ""):
		return errors.New("cancel needs either a trial or a cell")
	case q.Action == EndTurn && (q.Trial == "" || q.Cell != ""):
		return errors.New("end-turn needs a trial")
	case q.Action == EndTurn && strings.TrimSpace(q.Why) == "":
		return errors.New("end-turn changes a result: give a reason, which is kept in the record")
	case q.Action == Set && len(q.Set) == 0:
		return fmt.Errorf("set needs a limit: one of %s", strings.Join(Limits, ", "))
	case q.Action != Set && (len(q.Set) > 0 || q.Yes):
		return fmt.Errorf("%s sets no limits", q.Action)
	}
	for name, most := range q.Set {
		if err := checkLimit(name, most); err != nil {
			return err
		}
	}
	return nil
}

// checkLimit returns what is wrong with the value of a limit.
func checkLimit(name string, most *float64) error {
	const largest = 1 << 53 // whole numbers up to this are exact
	switch {
	case !slices.Contains(Limits, name):
		return fmt.Errorf("unknown limit %q: choose from %s", name, strings.Join(Limits, ", "))
	case most == nil && name == InFlight:
		return errors.New("in_flight must be a number: at least 1")
	case most == nil:
		return nil
	case math.IsNaN(*most) || *most <= 0 || *most > largest:
		return fmt.Errorf("%s must be above 0, and at most 2^53, got %g", name, *most)
	case name == InFlight && *most > maxInFlight:
		return fmt.Errorf("in_flight must be at most %d, got %g", maxInFlight, *most)
	case name != CostUSD && *most != math.Trunc(*most):
		return fmt.Errorf("%s must be a whole number, got %g", name, *most)
	}
	return nil
}

// maxInFlight is the largest number of attempts at the same time that can be asked
// for, to catch slips of the finger.
const maxInFlight = 100_000

// effect makes a change.
func (s *Server) effect(q *Request, c *change) error {
	who := fmt.Sprintf("%s (uid %d)", c.User, c.UID)
	switch q.Action {
	case Pause:
		c.did = "paused the run"
		return s.hold(Paused, who+" "+c.did, q.Why)
	case Drain:
		c.did = "drained the run"
		c.more = ": it stops when the attempts in progress have ended, and can be resumed then"
		return s.hold(Draining, "drained by "+who, q.Why)
	case Continue:
		c.did = "continued the run"
		return s.hold(Running, "", "")
	case Set:
		return s.set(q, c)
	case EndTurn:
		t, err := report.FindTrial(s.index, q.Trial)
		if err != nil {
			return err
		}
		c.Trial = t.ID
		c.did = "ended the turn of the agent in " + of(t)
		if err = s.o.Control.EndTurn(t.ID, who+" ended the turn: "+q.Why); err != nil {
			err = fmt.Errorf("%s: %w", of(t), err)
		}
		return err
	default:
		return s.cancel(q, c, who)
	}
}

// of names a trial for people.
func of(t *store.TrialState) string {
	return fmt.Sprintf("%s (trial %s)", t.Task, report.Short(t.ID, 12))
}

// hold sets whether attempts begin.
func (s *Server) hold(state, by, why string) error {
	if by != "" && why != "" {
		by += ": " + why
	}
	drain := ""
	if state == Draining {
		drain = by
	}
	if err := s.o.Control.Hold(state == Paused, drain); err != nil {
		return err
	}
	s.state.held(state, by)
	return nil
}

// cancel cancels a trial or a cell.
func (s *Server) cancel(q *Request, c *change, who string) error {
	chosen := func(t *plan.Trial) bool { return t.ID == c.Trial }
	what := ""
	if q.Cell == "" {
		t, err := report.FindTrial(s.index, q.Trial)
		if err != nil {
			return err
		}
		c.Trial, what = t.ID, of(t)
	} else {
		cells := s.o.Store.Manifest.Cells
		i := slices.IndexFunc(cells, func(c store.Cell) bool { return c.Key == q.Cell || c.Slug == q.Cell })
		if i < 0 {
			return fmt.Errorf("no cell %q in this run: `berth show RUN` lists the cells", q.Cell)
		}
		c.Cell, what = cells[i].Slug, "cell "+cmp.Or(cells[i].Key, cells[i].Slug)
		chosen = func(t *plan.Trial) bool { return s.o.Store.Manifest.Cells[t.Cell].Slug == c.Cell }
	}
	by := who + " cancelled it"
	if q.Why != "" {
		by += ": " + q.Why
	}
	did, err := s.o.Control.Cancel(chosen, by)
	if err != nil {
		return err
	}
	kept := errors.Join(did.Kept...)
	switch {
	case did.Waiting+did.Running == 0 && kept != nil:
		return fmt.Errorf("%s cannot be cancelled: %w", what, kept)
	case did.Waiting+did.Running == 0:
		return fmt.Errorf("%s has nothing to cancel: nothing of it waits or is in progress", what)
	}
	c.did = fmt.Sprintf("cancelled %s: %d in progress, %d that had not begun", what, did.Running, did.Waiting)
	c.more = ". berth resume runs what was cancelled again"
	if kept != nil {
		c.more += fmt.Sprintf(". %d continue: %v", len(did.Kept), kept)
	}
	return nil
}

// set changes limits.
func (s *Server) set(q *Request, c *change) error {
	var said []string
	c.Set = map[string]float64{}
	err := s.o.Control.Limits(func(l *experiment.RunLimits) error {
		for _, name := range Limits {
			most, asked := q.Set[name]
			if !asked {
				continue
			}
			before := limitOf(l, name)
			if name != InFlight && before != nil && (most == nil || *most > *before) && !q.Yes {
				return fmt.Errorf("%s is %s, and %s is more: a larger budget needs --yes", name, number(before), number(most))
			}
			setLimit(l, name, most)
			said = append(said, fmt.Sprintf("%s from %s to %s", name, number(before), number(most)))
			c.Set[name] = -1
			if most != nil {
				c.Set[name] = *most
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.state.limit(q.Set)
	c.did = "set " + strings.Join(said, ", ")
	return nil
}

func number(most *float64) string {
	if most == nil {
		return "none"
	}
	return strconv.FormatFloat(*most, 'f', -1, 64)
}

// limitOf returns a limit by its name; nil: there is none.
func limitOf(l *experiment.RunLimits, name string) *float64 {
	switch name {
	case InFlight:
		return converted[float64](l.InFlight)
	case Tokens:
		return converted[float64](l.Tokens)
	case Requests:
		return converted[float64](l.Requests)
	default:
		return l.CostUSD
	}
}

// setLimit replaces a limit by its name.
func setLimit(l *experiment.RunLimits, name string, most *float64) {
	switch name {
	case InFlight:
		l.InFlight = cmp.Or(converted[int](most), l.InFlight)
	case Tokens:
		l.Tokens = converted[int64](most)
	case Requests:
		l.Requests = converted[int64](most)
	default:
		l.CostUSD = most
	}
}

// converted returns a number as another type; nil stays nil.
func converted[To, From int | int64 | float64](n *From) *To {
	if n == nil {
		return nil
	}
	return new(To(*n))
}

// Resume gives a run in progress the limits that people set with Set before, and
// describes which ones differ from l. The last change of a limit counts. What
// was paused, drained or cancelled continues.
func Resume(notes []store.Entry, l *experiment.RunLimits) (said []string) {
	for _, name := range Limits {
		i := lastSet(notes, name)
		if i < 0 {
			continue
		}
		by := notes[i].Intervention
		most := new(by.Set[name])
		if *most < 0 {
			most = nil
		}
		if checkLimit(name, most) != nil {
			continue // no version of this program wrote it
		}
		before := limitOf(l, name)
		if (before == nil) == (most == nil) && (before == nil || *before == *most) {
			continue
		}
		setLimit(l, name, most)
		said = append(said, fmt.Sprintf("%s is %s, as %s set it on %s", name, number(most), by.User, notes[i].Time.Format(time.DateTime)))
	}
	return said
}

// lastSet returns the index of the last note that set a limit; -1: there is none.
func lastSet(notes []store.Entry, name string) int {
	for i, n := range slices.Backward(notes) {
		if n.Intervention == nil {
			continue
		}
		if _, set := n.Intervention.Set[name]; set {
			return i
		}
	}
	return -1
}
