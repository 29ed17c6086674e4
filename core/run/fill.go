package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// left counts the trials that have not begun, or wait for their next attempt.
func (s *scheduler) left() int { return s.queue.left + len(s.delayed) }

// promote moves trials that have waited long enough into the queue.
func (s *scheduler) promote(now time.Time) {
	for len(s.delayed) > 0 && !s.delayed[0].ready.After(now) {
		s.queue.back(s.delayed[0])
		s.delayed = s.delayed[1:]
	}
}

// timer returns a channel that gets a value when it is time to look again for
// something to start; nil, which never does, if nothing waits for a time.
func (s *scheduler) timer() <-chan time.Time {
	if s.stopped != "" || len(s.delayed) == 0 {
		return nil
	}
	return time.After(time.Until(s.delayed[0].ready))
}

// fill starts attempts until a limit is reached. The next one is always of the
// cell of which the smallest part has begun and that can start one, so that a run
// that is stopped has done about the same part of every cell.
//
// While a trial waits for memory, no other one that asks for memory starts:
// otherwise small ones could keep a large one waiting to the end.
func (s *scheduler) fill(ctx context.Context) {
	s.promote(time.Now())
	skip := map[*lane]bool{}
	short := false // the first trial of a cell waits for memory
	for s.obey(); s.stopped == "" && !s.paused && s.drain == "" && ctx.Err() == nil; s.obey() {
		next := s.queue.next(skip)
		if next == nil {
			return
		}
		h := s.places.holder(s.demand(next.items[0]))
		if short && h.memory > 0 {
			skip[next] = true
			continue
		}
		switch h.start() {
		case admitted:
			s.start(ctx, s.queue.take(next), h)
		case allFull:
			return
		case noMemory:
			short, skip[next] = true, true
			s.sayShort(h)
		default:
			skip[next] = true
		}
	}
}

// sayShort says once in a run that a trial with a free place waits for memory:
// without that, it is not known why fewer attempts run than the limits allow.
func (s *scheduler) sayShort(h *holder) {
	if s.short {
		return
	}
	s.short = true
	all, left := s.places.memoryLeft()
	why := fmt.Sprintf("asks for %d MiB of memory, and %d of %d MiB are left", h.memory, left, all)
	if h.memory > all {
		why = fmt.Sprintf("asks for %d MiB of memory, more than all %d MiB: it runs without other tasks that ask for memory", h.memory, all)
	}
	s.tell(Event{Kind: Held, Text: "the task of a trial with a free place " + why + ". memory_mib in limits sets another number. Later waits for memory are not reported"})
}

func (s *scheduler) demand(it item) Demand {
	if s.o.Demand == nil {
		return Demand{}
	}
	return s.o.Demand(it.trial)
}

// start starts an attempt, which has a place.
func (s *scheduler) start(ctx context.Context, it item, h *holder) {
	a, err := s.o.Store.Begin(it.trial.ID)
	s.carry(ctx, it, h, a, err)
}

// adopt resumes attempts that an earlier process started. They have
// their places whatever the limits are now.
func (s *scheduler) adopt(ctx context.Context, adopted []item) {
	for _, it := range adopted {
		h := s.places.holder(s.demand(it))
		h.take()
		a, err := s.o.Store.Adopt(it.trial.ID, s.o.Adopted(it.trial))
		s.carry(ctx, it, h, a, err)
	}
}

// takeAdopted takes the trials with an attempt that continues out of items.
func takeAdopted(items *[]item, number func(*plan.Trial) int) (adopted []item) {
	if number == nil {
		return nil
	}
	*items = slices.DeleteFunc(*items, func(it item) bool {
		goesOn := number(it.trial) > 0
		if goesOn {
			adopted = append(adopted, it)
		}
		return goesOn
	})
	return adopted
}

// carry waits for the end of an attempt, in the background. lost is why it could not
// be begun.
func (s *scheduler) carry(ctx context.Context, it item, h *holder, a *store.Attempt, lost error) {
	if lost != nil {
		h.end()
		s.unwritten(it, 0, lost)
		return
	}
	s.tell(Event{Kind: Began, Trial: it.trial, Attempt: a.Number()})
	s.running++
	ctx, cancel := context.WithCancelCause(ctx)
	ends := make(chan error)
	s.active[it.trial] = &active{number: a.Number(), ends: ends, cancel: cancel}
	go func() {
		defer cancel(nil)
		f := finished{item: it, place: h, number: a.Number()}
		f.result, f.err = s.o.Executor.Attempt(ctx, Job{Trial: it.trial, Attempt: a, Places: h, Origin: s.o.Origins[it.trial.ID], Ends: ends, Live: func(e record.Event) {
			s.events.tell(Event{Kind: Live, Trial: it.trial, Attempt: a.Number(), Live: e})
		}})
		f.err = errors.Join(f.err, a.Abandon())
		s.done <- f
	}()
}
