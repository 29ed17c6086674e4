package cluster

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

// ahead is how many attempts are in the queue or with pilots if the run has no
// limit: pilots limit how many they make, each on its machine.
const ahead = 256

// Execute runs every trial of a plan that is not settled yet, as run.Execute does,
// with pilots instead of this machine. Attempts that an earlier coordinator queued
// and that continue are kept. When ctx ends, pilots cancel and publish their attempts.
//
// With a fleet, a scheduler keeps pilots alive while there is work; nil: the user
// starts them. If it refuses the first ones, nothing is run.
func Execute(ctx context.Context, s run.Spec, settings Settings, fleet *Fleet, watch run.Observer) (report run.Report, err error) {
	if s.Origins != nil {
		return report, errors.New("pilots make only whole attempts: verify again on this machine")
	}
	var mu sync.Mutex
	var k *keeper
	told := func(e run.Event) {
		mu.Lock()
		defer mu.Unlock()
		if k != nil {
			k.heard(e)
		}
		watch(e)
	}
	settings.Berth, settings.AcceptDrift = s.Berth, s.AcceptDrift
	r, err := newRelay(ctx, &s, settings.RelayAddress)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	settings.Relay = new(r.server.Place())
	c, err := New(ctx, Options{
		relay: r,
		Plan:  s.Plan, Store: s.Store, Settings: settings,
		Say: func(text string) { told(run.Event{Kind: run.Notice, Text: text}) },
	})
	if err != nil {
		return report, err
	}
	r.begin(c)
	if s.Limits.InFlight == nil {
		s.Limits.InFlight = new(ahead)
	}
	s.Executor, s.Retry, s.Demand, s.Adopted, s.Watch = c, s.Plan.Experiment.Retry, run.Demands(s.Plan), c.Adopted, told
	if fleet == nil {
		report, err = run.Schedule(ctx, s)
		return report, errors.Join(err, c.Close())
	}
	first, err := newKeeper(ctx, *fleet, c, run.ToRun(&s))
	if err != nil {
		return report, errors.Join(err, c.Close())
	}
	mu.Lock()
	k = first
	mu.Unlock()
	work, fail := context.WithCancelCause(ctx)
	keep, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { first.keep(keep, fail) })
	report, err = run.Schedule(work, s)
	stop()
	keeping.Wait()
	fail(nil)
	return report, errors.Join(err, c.Close(), first.end(ctx))
}

// Withdraw ends what pilots of an earlier coordinator may still do: this process
// continues with the run without pilots. Attempts that have no result end as
// preempted, and what pilots make of them is thrown away. It does nothing to a run
// without pilots.
func Withdraw(ctx context.Context, s *store.Run, version string) error {
	if _, err := os.Lstat(filepath.Join(s.Dir, Dir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := New(ctx, Options{Plan: &plan.Plan{Experiment: &experiment.Experiment{}}, Store: s, Settings: Settings{Berth: version}})
	if err != nil {
		return err
	}
	const why = "the run continues without pilots"
	c.Stop(why)
	index := s.Index()
	for id, number := range c.adopted {
		a, adopting := s.Adopt(id, number)
		if err = errors.Join(err, adopting); adopting != nil {
			continue
		}
		w := &waiting{name: AttemptName(id, number), job: run.Job{Trial: &plan.Trial{Trial: *index.Trial(id).Trial}, Attempt: a}, ended: make(chan end, 1)}
		c.mu.Lock()
		r := c.unmade(w, record.Preempted, why)
		c.settle(w, &r)
		c.mu.Unlock()
		e := <-w.ended
		if err = errors.Join(err, e.err); e.err == nil {
			err = errors.Join(err, a.Took(&e.result, 0), c.unqueue(w.name))
		}
		err = errors.Join(err, a.Abandon())
	}
	return errors.Join(err, c.Close())
}
