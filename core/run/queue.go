package run

import (
	"slices"
	"sync"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// todo returns the trials that still have to run, in the order of the plan, and
// all trials that can run.
func todo(o *Spec) (items []item, planned []*plan.Trial) {
	index := o.Store.Index()
	for i := range o.Plan.Trials {
		t := &o.Plan.Trials[i]
		if t.Invalid != "" || t.Refused != "" {
			continue
		}
		state := index.Trial(t.ID)
		if state == nil {
			continue
		}
		planned = append(planned, t)
		retries, run := Open(state, o.Retry, o.Again)
		if o.Selected != nil && !run && !state.Measured() {
			retries, run = 0, true
		}
		if o.Origins[t.ID] != nil {
			retries, run = 0, true
		} else if o.Origins != nil {
			continue
		}
		if run && (o.Selected == nil || o.Selected[t.ID]) {
			items = append(items, item{trial: t, retries: retries})
		}
	}
	return items, planned
}

// ToRun counts the trials that still have to run.
func ToRun(s *Spec) int {
	items, _ := todo(s)
	return len(items)
}

// Open reports whether a trial still has to run, and how many retries it has
// had. It has to run if it has no final outcome, if its last outcome is to be
// retried, or if the user wants it to run again. A measured trial does that only
// after an error of its verifier, which may have been mended.
func Open(t *store.TrialState, r experiment.Retry, more []record.Outcome) (retries int, run bool) {
	if t.Invalid != "" || t.Refused != "" {
		return 0, false
	}
	for _, a := range t.Attempts {
		if a.Result != nil && again(r, a.Result.Outcome, a.Result.AgentEnd, a.Result.Retryable) {
			retries++
		}
	}
	last := t.Accepted()
	switch {
	case last == nil || !last.Result.Outcome.Final():
		return min(retries, r.Max), true
	case slices.Contains(more, last.Result.Outcome) && (last.Result.Outcome == record.VerifierError || !last.Result.Measured()):
		return 0, true
	case again(r, last.Result.Outcome, last.Result.AgentEnd, last.Result.Retryable):
		return retries, retries <= r.Max
	default:
		return 0, false
	}
}

// again reports whether an attempt is retried. An error that would be the same
// next time is not retried, and neither is an attempt that counts as measured.
func again(r experiment.Retry, o record.Outcome, end record.AgentEnd, retryable bool) bool {
	return r.Max > 0 && retryable && !o.MeasuredAfter(end) && slices.Contains(r.On, o)
}

// watcher passes events on, one after another.
type watcher struct {
	mu   sync.Mutex
	to   func(Event)
	last Event // live events repeat its counts
}

func (w *watcher) tell(e Event) {
	if w.to == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Kind == Live {
		e.To, e.Running, e.Left = w.last.To, w.last.Running, w.last.Left
	} else {
		w.last = e
	}
	w.to(e)
}

// lane has the trials of one cell that have not begun, in the order of the plan.
type lane struct {
	cell  int
	items []item
	// planned counts the trials of the cell, and begun those that have an outcome
	// or are running.
	planned, begun int
}

// lanes are the trials that still have to run, by cell.
type lanes struct {
	all  []*lane // by cell
	left int     // trials in all of them
}

// newLanes sorts trials by cell. planned are all trials of the plan that can
// run; those that are not among the items have an outcome.
func newLanes(items []item, planned []*plan.Trial) *lanes {
	l := &lanes{left: len(items)}
	for _, t := range planned {
		of := l.of(t)
		of.planned++
		of.begun++
	}
	for _, it := range items {
		of := l.of(it.trial)
		of.items = append(of.items, it)
		of.begun--
	}
	return l
}

func (l *lanes) of(t *plan.Trial) *lane {
	for len(l.all) <= t.Cell {
		l.all = append(l.all, &lane{cell: len(l.all)})
	}
	return l.all[t.Cell]
}

// behind reports whether less of a cell has begun than of another one.
func (a *lane) behind(b *lane) bool {
	return a.begun*b.planned < b.begun*a.planned
}

// next returns the cell of which the smallest part has begun, the first of those
// with equal parts, without the cells to skip; nil if there is none.
func (l *lanes) next(skip map[*lane]bool) (next *lane) {
	for _, a := range l.all {
		if len(a.items) > 0 && !skip[a] && (next == nil || a.behind(next)) {
			next = a
		}
	}
	return next
}

// take removes the first trial of a cell.
func (l *lanes) take(a *lane) item {
	it := a.items[0]
	a.items = a.items[1:]
	a.begun++
	l.left--
	return it
}

// back puts a trial that has begun before at the end of its cell.
func (l *lanes) back(it item) {
	of := l.of(it.trial)
	of.items = append(of.items, it)
	of.begun--
	l.left++
}

// drop removes trials.
func (l *lanes) drop(gone func(item) bool) {
	for _, a := range l.all {
		l.left -= len(a.items)
		a.items = slices.DeleteFunc(a.items, gone)
		l.left += len(a.items)
	}
}
