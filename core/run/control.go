package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/trial/outcome"
)

// Control changes a run while it runs. The zero value is ready, for one run. Its
// methods are safe for concurrent use and have taken effect when they return. They
// fail with ErrNotGoingOn before attempts are scheduled, and after the last one.
// They record nothing: the caller does.
type Control struct {
	mu      sync.Mutex
	s       *scheduler // nil: before and after
	gateway *gateway.Gateway
}

// ErrNotGoingOn means that there is nothing to control.
var ErrNotGoingOn = errors.New("the run has not begun its attempts yet, or is over")

// active is an attempt in progress.
type active struct {
	number int
	ends   chan<- error
	cancel context.CancelCauseFunc
	gone   bool // it is cancelled, so its trial does not run again
}

// withdrawer is an executor whose attempts are made elsewhere: it can cancel those
// that have not begun.
type withdrawer interface {
	Withdraw(trial string, attempt int, why error) error
}

// begin lets c control a scheduler, until end is called. c may be nil.
func (c *Control) begin(s *scheduler) (end func()) {
	if c == nil {
		return func() {}
	}
	set := func(to *scheduler) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.s = to
	}
	set(s)
	return func() {
		set(nil)
		close(s.over)
	}
}

// do calls f in the goroutine of the scheduler.
func (c *Control) do(f func(*scheduler) error) error {
	c.mu.Lock()
	s := c.s
	c.mu.Unlock()
	if s == nil {
		return ErrNotGoingOn
	}
	done := make(chan error, 1)
	select {
	case s.asked <- func() { done <- f(s) }:
		return <-done
	case <-s.over:
		return ErrNotGoingOn
	}
}

// Hold keeps attempts from beginning: with paused until the next call, with drain,
// which says why, until those in progress have ended, when the run stops. With
// neither, attempts begin again.
func (c *Control) Hold(paused bool, drain string) error {
	return c.do(func(s *scheduler) error {
		if s.stopped != "" {
			return fmt.Errorf("the run is stopping: %s", s.stopped)
		}
		s.paused, s.drain = paused, drain
		return nil
	})
}

// Limits lets change replace the attempts in flight and the budgets of the run, unless
// it fails. Other limits do not change.
func (c *Control) Limits(change func(*experiment.RunLimits) error) error {
	return c.do(func(s *scheduler) error {
		l := s.o.Limits
		l.InFlight = new(inFlight(l))
		if err := change(&l); err != nil {
			return err
		}
		if c.gateway != nil {
			if err := c.gateway.Limit(l.Budget); err != nil {
				return err
			}
		}
		s.o.Limits = l
		s.places.limit(l)
		s.stopSpent()
		return nil
	})
}

// Cancelled is what Cancel did, in trials.
type Cancelled struct {
	Waiting, Running int
	Kept             []error // why attempts continue
}

// Cancel cancels trials. Those that wait do not begin; attempts in progress end as
// cancelled, with the text of why.
func (c *Control) Cancel(chosen func(*plan.Trial) bool, why string) (out Cancelled, err error) {
	err = c.do(func(s *scheduler) error {
		waiting := s.left()
		s.drop(chosen)
		out.Waiting = waiting - s.left()
		s.to -= out.Waiting
		for t, a := range s.active {
			if a.gone || !chosen(t) {
				continue
			}
			if elsewhere, ok := s.o.Executor.(withdrawer); !ok {
				a.cancel(outcome.ByHand(why))
			} else if kept := elsewhere.Withdraw(t.ID, a.number, outcome.ByHand(why)); kept != nil {
				out.Kept = append(out.Kept, fmt.Errorf("%s: %w", t.Task, kept))
				continue
			}
			a.gone = true
			out.Running++
		}
		return nil
	})
	return out, err
}

// EndTurn ends the turn of the agent in the attempt of a trial, which is then graded.
func (c *Control) EndTurn(id, why string) error {
	var ends chan<- error
	if err := c.do(func(s *scheduler) error {
		if _, elsewhere := s.o.Executor.(withdrawer); elsewhere {
			return errors.New("pilots make the attempts of this run, and their turns cannot be ended from here")
		}
		for t, a := range s.active {
			if t.ID == id {
				ends = a.ends
				return nil
			}
		}
		return errors.New("no attempt of it is in progress")
	}); err != nil {
		return err
	}
	select {
	case ends <- outcome.ByHand(why):
		return nil
	case <-time.After(time.Second): // the watch of a turn answers at once
		return errors.New("its agent has no turn at the moment: the attempt is before or after it")
	}
}

// drop takes trials out of those that have not begun, or wait for their next attempt.
func (s *scheduler) drop(chosen func(*plan.Trial) bool) {
	gone := func(it item) bool { return chosen(it.trial) }
	s.queue.drop(gone)
	s.delayed = slices.DeleteFunc(s.delayed, gone)
}

// obey does what a Control asks for at the moment.
func (s *scheduler) obey() {
	for {
		select {
		case do := <-s.asked:
			do()
		default:
			return
		}
	}
}
