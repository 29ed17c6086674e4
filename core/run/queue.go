package run

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// todo are the trials that still have to be run, in the order of the plan.
func todo(o Options) []item {
	index := o.Store.Index()
	var items []item
	for i := range o.Plan.Trials {
		t := &o.Plan.Trials[i]
		if t.Invalid != "" || t.Refused != "" {
			continue
		}
		state := index.Trial(t.ID)
		if state == nil {
			continue
		}
		if retries, run := Open(state, o.Retry, o.Again); run {
			items = append(items, item{trial: t, retries: retries})
		}
	}
	return items
}

// Open says whether a trial still has to be run, and how many retries it has
// had: it has no final outcome, its last one is to be retried, or it is one of
// those that the user wants again.
func Open(t *store.TrialState, r config.Retry, more []record.Outcome) (retries int, run bool) {
	if t.Invalid != "" || t.Refused != "" {
		return 0, false
	}
	last := t.Accepted()
	if last == nil || !last.Result.Outcome.Final() {
		for _, a := range t.Attempts {
			if a.Result != nil && again(r, a.Result.Outcome, a.Result.AgentEnd, a.Result.Retryable) {
				retries++
			}
		}
		return min(retries, r.Max), true
	}
	if slices.Contains(more, last.Result.Outcome) {
		return 0, true
	}
	if !again(r, last.Result.Outcome, last.Result.AgentEnd, last.Result.Retryable) {
		return 0, false
	}
	for _, a := range t.Attempts {
		if a.Result != nil && again(r, a.Result.Outcome, a.Result.AgentEnd, a.Result.Retryable) {
			retries++
		}
	}
	return retries, retries <= r.Max
}

// again says whether an attempt is one that is retried. An error that will be
// the same next time is not, nor one that counts as measured.
func again(r config.Retry, o record.Outcome, end record.AgentEnd, retryable bool) bool {
	return r.Max > 0 && retryable && !o.MeasuredAfter(end) && slices.Contains(r.On, o)
}

// waiting are the trials that wait for their next attempt, earliest first.
type waiting []item

func (w *waiting) push(it item) { heap.Push((*byTime)(w), it) }

func (w *waiting) pop() item {
	it, _ := heap.Pop((*byTime)(w)).(item) //nolint:errcheck // Pop returns what push took
	return it
}

// timer fires when the first of them is ready; never when there is none.
func (w waiting) timer() (<-chan time.Time, func()) {
	if len(w) == 0 {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(w[0].ready))
	return t.C, func() { t.Stop() }
}

type byTime []item

func (b *byTime) Len() int           { return len(*b) }
func (b *byTime) Less(i, j int) bool { return (*b)[i].ready.Before((*b)[j].ready) }
func (b *byTime) Swap(i, j int)      { (*b)[i], (*b)[j] = (*b)[j], (*b)[i] }
func (b *byTime) Push(x any) {
	if it, ok := x.(item); ok {
		*b = append(*b, it)
	}
}

func (b *byTime) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// watcher hands events on, one after another.
type watcher struct {
	mu   sync.Mutex
	to   func(Event)
	last Event // whose counts live events repeat
}

func (w *watcher) tell(e Event) {
	if w.to == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = e
	w.to(e)
}

func (w *watcher) live(e Event) {
	if w.to == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.To, e.Running, e.Left = w.last.To, w.last.Running, w.last.Left
	w.to(e)
}
