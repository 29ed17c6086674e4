package cluster

import (
	"context"
	"errors"
	"sync"

	"github.com/berth-eval/berth/core/run"
)

// ahead is how many attempts are in the queue or with pilots if the run has no
// limit: pilots limit how many they make, each on its machine.
const ahead = 256

// Execute runs every trial of a plan that is not settled yet, as run.Execute does,
// with pilots instead of this machine. Attempts that an earlier coordinator queued
// and that go on are kept. When ctx ends, pilots cancel and publish their attempts.
func Execute(ctx context.Context, s run.Spec, settings Settings, watch run.Observer) (report run.Report, err error) {
	if s.Origins != nil {
		return report, errors.New("pilots make only whole attempts: verify again on this machine")
	}
	var mu sync.Mutex
	told := func(e run.Event) {
		mu.Lock()
		defer mu.Unlock()
		watch(e)
	}
	settings.Berth, settings.AcceptDrift = s.Berth, s.AcceptDrift
	c, err := New(Options{
		Plan: s.Plan, Store: s.Store, Settings: settings, Longest: Longest(s.Plan),
		Say: func(text string) { told(run.Event{Kind: run.Notice, Text: text}) },
	})
	if err != nil {
		return report, err
	}
	if s.Limits.InFlight == nil {
		s.Limits.InFlight = new(ahead)
	}
	report, err = run.Schedule(ctx, run.Options{
		Plan: s.Plan, Store: s.Store, Executor: c, Retry: s.Plan.Experiment.Retry, Limits: s.Limits, Again: s.Again, Selected: s.Selected, Watch: told,
		Demand: run.Demands(s.Plan), Adopted: c.Adopted,
	})
	return report, errors.Join(err, c.Close())
}
