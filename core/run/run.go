// Package run executes a run. It prepares this machine, decides when each trial
// runs and how many run at the same time, which attempts are repeated, what a
// resumed run still has to do and when to stop, and removes what was left
// behind. Execute does all of that; the other functions are for callers that
// need a part, such as pulling images before a run.
//
// It must not know what an attempt does (core/trial), how it is recorded
// (core/store), or how progress is displayed. A failed trial never ends a run;
// a run folder that cannot be written does.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial"
)

// Job is one attempt to make.
type Job struct {
	Trial   *plan.Trial
	Attempt Attempt
	// Live receives the events of the attempt; it does not block.
	Live func(record.Event)
	// Places admits the attempt to its next part. It begins in the part
	// trial.Building.
	Places trial.Places
	// Origin is the attempt to verify again; nil: a whole attempt is made.
	Origin *trial.Origin
	// Ends ends a turn of the agent; nothing receives from it meanwhile.
	Ends <-chan error
}

// Attempt is where an attempt is recorded: in the folder of the run
// ([store.Attempt]), or first on a disk of this machine ([store.Staged]).
type Attempt interface {
	trial.Attempt
	// Number is 1 for the first attempt of a trial.
	Number() int
}

// Executor runs attempts. It is safe for concurrent use.
type Executor interface {
	// Attempt runs one attempt, publishes its result and returns it. Every
	// failure within the attempt is in the result; an error means that the
	// result could not be written. When ctx ends, the attempt is soon
	// cancelled, cleaned up and published.
	Attempt(ctx context.Context, j Job) (record.Result, error)
}

// EventKind is the kind of an Event.
type EventKind int

// The kinds of events.
const (
	Began    EventKind = iota // an attempt began
	Live                      // something happened in a running attempt
	Ended                     // an attempt ended, with its result
	Lost                      // an attempt whose result could not be written
	Waiting                   // a trial waits for its next attempt
	Stopping                  // no more attempts begin in the run, or in the cell of Trial; Text says why
	Held                      // attempts that have a free place do not begin for the moment; Text says why
	Notice                    // something that concerns workers on other machines; Text says what
)

// Event is something that happened in a run.
type Event struct {
	Kind    EventKind
	Trial   *plan.Trial // nil when the whole run is stopping
	Attempt int
	Result  *record.Result // with Ended
	Live    record.Event   // with Live
	Wait    time.Duration  // with Waiting
	Text    string
	// To, Running and Left count trials: all that have to run, those that are
	// running now, and those that have not begun.
	To, Running, Left int
}

// Report says how carrying out a plan ended.
type Report struct {
	// Stopped is the reason why the run, or some of its cells, ended early;
	// empty if everything was done.
	Stopped string
	// Broken is the failed write to the run folder that stopped the run.
	Broken error
	// Ran counts the attempts that were published in this call.
	Ran int
}

// brokenLimit is how many attempts in a row may fail to be written before the
// run folder counts as unusable.
const brokenLimit = 3

// Schedule is the part of Execute that runs the trials, with the executor of o. It
// returns when all attempts that it began have ended. When ctx ends, no more attempts begin
// and the running ones are cancelled.
func Schedule(ctx context.Context, o Spec) (Report, error) {
	for _, a := range o.Again {
		if a.Measured() {
			return Report{}, fmt.Errorf("outcome %s is a measurement: running it again would choose among results", a)
		}
	}
	s := &scheduler{o: o, done: make(chan finished), places: newPlaces(o.Limits, o.FreeMiB), cells: map[int]string{}}
	s.active, s.asked, s.over = map[*plan.Trial]*active{}, make(chan func()), make(chan struct{})
	if o.Limits.Time != nil {
		end, cancel := context.WithTimeout(ctx, *o.Limits.Time)
		defer cancel()
		s.late = end.Done()
	}
	items, planned := todo(&o)
	adopted := takeAdopted(&items, o.Adopted)
	s.queue = newLanes(items, planned)
	s.to = s.queue.left + len(adopted)
	s.spend(nil)
	s.events.to = s.o.Watch
	s.adopt(ctx, adopted)
	defer o.Control.begin(s)()
	cancelled := ctx.Done()
	for {
		s.fill(ctx)
		if s.running == 0 && (s.stopped != "" || s.drain != "" || ctx.Err() != nil || s.left() == 0) {
			break
		}
		select {
		case f := <-s.done:
			s.end(f)
		case do := <-s.asked:
			do()
		case <-s.places.freed:
		case <-s.timer():
		case <-cancelled:
			cancelled = nil
			s.stop(whyEnded(ctx))
		case <-s.late:
			s.late = nil
			s.stop(fmt.Sprintf("the time limit of the run, %s, is over", *s.o.Limits.Time))
		}
	}
	if ctx.Err() != nil && s.left() > 0 {
		s.stop(whyEnded(ctx))
	}
	if s.drain != "" {
		s.stop(s.drain)
	}
	s.report.Stopped = s.reasons()
	if s.report.Broken != nil {
		s.report.Stopped = "the run folder cannot be written"
	}
	return s.report, nil
}

// inFlight returns how many attempts run at the same time.
func inFlight(l experiment.RunLimits) int {
	if l.InFlight != nil && *l.InFlight > 0 {
		return *l.InFlight
	}
	return runtime.GOMAXPROCS(0)
}

// item is a trial that still has to run.
type item struct {
	trial   *plan.Trial
	retries int       // made so far
	ready   time.Time // earliest start; zero: at once
}

// finished is an attempt that ended.
type finished struct {
	item   item
	place  *holder
	number int
	result record.Result
	err    error
}

// scheduler is the state of Schedule; its methods run in one goroutine.
type scheduler struct {
	o      Spec
	places *places
	late   <-chan struct{} // closed when the time limit of the run is reached
	short  bool            // the user was told that a trial waits for memory

	to      int
	queue   *lanes
	delayed []item // trials that wait for their next attempt, earliest first
	running int
	done    chan finished
	events  watcher

	active map[*plan.Trial]*active
	asked  chan func()   // by a Control
	over   chan struct{} // closed when there is nothing to control any more
	paused bool
	drain  string // why the run stops when the attempts in progress have ended; empty: it does not

	stopped string
	cells   map[int]string // stopped cells, with the reasons
	broken  int            // attempts in a row that could not be written
	used    store.Spend
	report  Report
}

// Interrupted is the Text of the Stopping event when the caller ended the run.
const Interrupted = "interrupted"

// Stop is the cause of a context that ends a run for another reason than the caller's.
type Stop struct{ Why string }

// Error implements error.
func (s Stop) Error() string { return s.Why }

// whyEnded returns why the context of a run has ended.
func whyEnded(ctx context.Context) string {
	if s, ok := errors.AsType[Stop](context.Cause(ctx)); ok {
		return s.Why
	}
	return Interrupted
}

// stop keeps further attempts from beginning, unless everything is done anyway.
// The first reason is kept.
func (s *scheduler) stop(why string) {
	if s.left()+s.running > 0 {
		s.stopRun(why)
	}
}

func (s *scheduler) stopRun(why string) {
	if s.stopped != "" {
		return
	}
	s.stopped = why
	s.tell(Event{Kind: Stopping, Text: why})
}

// stopCell keeps further attempts from beginning in the cell of a trial.
// Running attempts continue.
func (s *scheduler) stopCell(t *plan.Trial, why string) {
	if _, already := s.cells[t.Cell]; already {
		return
	}
	cell := &s.o.Store.Manifest.Cells[t.Cell]
	why = fmt.Sprintf("cell %s: %s", cmp.Or(cell.Key, cell.Slug), why) // the only cell has no key
	s.cells[t.Cell] = why
	s.drop(func(of *plan.Trial) bool { return of.Cell == t.Cell })
	s.tell(Event{Kind: Stopping, Trial: t, Text: why})
}

// reasons says why the run or some of its cells were stopped.
func (s *scheduler) reasons() string {
	if s.stopped != "" {
		return s.stopped
	}
	var whys []string
	for _, cell := range slices.Sorted(maps.Keys(s.cells)) {
		whys = append(whys, s.cells[cell])
	}
	return strings.Join(whys, "; ")
}

// delay makes a trial wait for its next attempt.
func (s *scheduler) delay(it item) {
	i, _ := slices.BinarySearchFunc(s.delayed, it, func(a, b item) int { return a.ready.Compare(b.ready) })
	s.delayed = slices.Insert(s.delayed, i, it)
}

func (s *scheduler) end(f finished) {
	s.running--
	f.place.end()
	gone := s.active[f.item.trial].gone
	delete(s.active, f.item.trial)
	if f.err != nil {
		s.unwritten(f.item, f.number, f.err)
		return
	}
	s.broken = 0
	s.report.Ran++
	s.spend(&f.result)
	if e := f.result.Error; e != nil {
		switch e.Stops {
		case record.ScopeRun:
			s.stopRun(e.Message)
		case record.ScopeCell:
			s.stopCell(f.item.trial, e.Message)
		default:
		}
	}
	_, over := s.cells[f.item.trial.Cell]
	retry := s.stopped == "" && !over && !gone && again(s.o.Retry, f.result.Outcome, f.result.AgentEnd, f.result.Error != nil && f.result.Error.Retry) &&
		f.item.retries < s.o.Retry.Max
	if retry {
		wait := backoff(s.o.Retry, f.item.retries)
		f.item.retries++
		f.item.ready = time.Now().Add(wait)
		s.delay(f.item)
		s.tell(Event{Kind: Ended, Trial: f.item.trial, Attempt: f.number, Result: &f.result})
		s.tell(Event{Kind: Waiting, Trial: f.item.trial, Attempt: f.number + 1, Wait: wait})
		return
	}
	s.tell(Event{Kind: Ended, Trial: f.item.trial, Attempt: f.number, Result: &f.result})
}

// unwritten handles the end of an attempt whose result could not be written.
// Its trial keeps no outcome, so that a resumed run repeats it.
func (s *scheduler) unwritten(it item, number int, err error) {
	s.broken++
	s.tell(Event{Kind: Lost, Trial: it.trial, Attempt: number, Text: err.Error()})
	if s.report.Broken == nil {
		s.report.Broken = err
	}
	if s.broken >= brokenLimit {
		s.stop("the run folder cannot be written")
	}
}

// spend counts the use of the run's budget. Unknown amounts are not counted;
// the gateway enforces budgets.
func (s *scheduler) spend(r *record.Result) {
	if r == nil { // count what the run spent before it was resumed
		for _, t := range s.o.Store.Index().Trials {
			for i := range t.Attempts {
				s.used.Add(t.Attempts[i].Spend())
			}
		}
	} else {
		s.used.Add(store.BriefOf(r).Spend)
	}
	s.stopSpent()
}

// stopSpent stops the run if a budget of it is used.
func (s *scheduler) stopSpent() {
	l := s.o.Limits
	switch {
	case l.CostUSD != nil && s.used.CostUSD != nil && *s.used.CostUSD >= *l.CostUSD:
		s.stop(fmt.Sprintf("the run has used its limit of %g USD: raise it, and resume with --experiment PATH", *l.CostUSD))
	case l.Tokens != nil && s.used.Tokens >= *l.Tokens:
		s.stop(fmt.Sprintf("the run has used its limit of %d tokens: raise it, and resume with --experiment PATH", *l.Tokens))
	case l.Requests != nil && s.used.Requests >= *l.Requests:
		s.stop(fmt.Sprintf("the run has used its limit of %d requests: raise it, and resume with --experiment PATH", *l.Requests))
	}
}

func (s *scheduler) tell(e Event) {
	e.To, e.Running, e.Left = s.to, s.running, s.left()
	s.events.tell(e)
}

// longestWait bounds the wait before an attempt, unless the experiment begins with a
// longer one.
const longestWait = time.Minute

// backoff returns how long to wait before the next attempt. The wait doubles
// with each attempt made, and is random between half and all of it, so that
// trials that failed together are not retried together.
func backoff(r experiment.Retry, made int) time.Duration {
	d, most := r.Wait, max(r.Wait, longestWait)
	for range made {
		d = min(2*d, most)
	}
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d/2+1)
}
