package run_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/internal/testlevel"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp(testlevel.Tmp(), "brt")
	if err == nil {
		err = os.Setenv(node.EnvDir, dir)
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// fake is an executor that does what the test says.
type fake struct {
	attempt  func(ctx context.Context, j run.Job) record.Result
	running  atomic.Int64
	mostEver atomic.Int64
	mu       sync.Mutex
	began    []string
}

func (f *fake) Attempt(ctx context.Context, j run.Job) (record.Result, error) {
	n := f.running.Add(1)
	defer f.running.Add(-1)
	for most := f.mostEver.Load(); n > most && !f.mostEver.CompareAndSwap(most, n); most = f.mostEver.Load() {
		continue
	}
	f.mu.Lock()
	f.began = append(f.began, j.Trial.ID)
	f.mu.Unlock()
	r := f.attempt(ctx, j)
	r.Version, r.Trial, r.Attempt, r.Phases = 1, j.Trial.ID, j.Attempt.Number(), []record.Phase{}
	return r, j.Attempt.Publish(r)
}

func always(o record.Outcome) func(context.Context, run.Job) record.Result {
	return func(context.Context, run.Job) record.Result { return record.Result{Outcome: o} }
}

func schedule(t *testing.T, o run.Spec) run.Report {
	t.Helper()
	report, err := run.Schedule(t.Context(), o)
	testlevel.Must(t, err)
	return report
}

func counts(r *store.Run) map[record.Outcome]int {
	n := map[record.Outcome]int{}
	for _, t := range r.Index().Trials {
		n[t.Outcome()]++
	}
	return n
}

func TestEveryTrialIsRunOnceInTheOrderOfThePlan(t *testing.T) {
	t.Parallel()
	p, r := cellsOf(t, 20)
	f := &fake{attempt: always(record.Passed)}
	one := 1
	report := schedule(t, run.Spec{Plan: p, Store: r, Executor: f, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &one}}})
	var want []string
	for i := range p.Trials {
		want = append(want, p.Trials[i].ID)
	}
	if !slices.Equal(f.began, want) || report.Ran != 20 || report.Stopped != "" {
		t.Errorf("ran %q, report %+v", f.began, report)
	}
	if got := counts(r); !maps.Equal(got, map[record.Outcome]int{record.Passed: 20}) {
		t.Errorf("outcomes %v", got)
	}
}

var retry = experiment.Retry{Max: 2, On: []record.Outcome{record.EnvironmentError}, Wait: time.Minute}

// failing gives an infrastructure error n times, then a pass.
func failing(n int, retryable bool) func(context.Context, run.Job) record.Result {
	return func(_ context.Context, j run.Job) record.Result {
		if j.Attempt.Number() <= n {
			return record.Result{Outcome: record.EnvironmentError, Error: &record.Error{Retry: retryable}}
		}
		return record.Result{Outcome: record.Passed}
	}
}

func TestRetriesAreByOutcomeAndBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		attempt  func(context.Context, run.Job) record.Result
		attempts int
		outcome  record.Outcome
	}{
		"one failure":               {failing(1, true), 2, record.Passed},
		"two failures":              {failing(2, true), 3, record.Passed},
		"too many":                  {failing(9, true), 3, record.EnvironmentError},
		"the same next time":        {failing(9, false), 1, record.EnvironmentError},
		"a measurement":             {always(record.Failed), 1, record.Failed},
		"an agent error":            {always(record.AgentError), 1, record.AgentError},
		"an outcome not named":      {always(record.VerifierError), 1, record.VerifierError},
		"cancelled from inside":     {always(record.Cancelled), 1, record.Cancelled},
		"a violation of the wallls": {always(record.IntegrityViolation), 1, record.IntegrityViolation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, r := cellsOf(t, 1)
				schedule(t, run.Spec{Plan: p, Store: r, Executor: &fake{attempt: tt.attempt}, Retry: retry})
				tr := r.Index().Trials[0]
				if len(tr.Attempts) != tt.attempts || tr.Outcome() != tt.outcome {
					t.Errorf("%d attempts, %s; want %d, %s", len(tr.Attempts), tr.Outcome(), tt.attempts, tt.outcome)
				}
			})
		})
	}
}

func TestWaitingForARetryHoldsNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := cellsOf(t, 5)
		var last time.Time
		f := &fake{attempt: func(_ context.Context, j run.Job) record.Result {
			if j.Trial.Repetition == 1 && j.Attempt.Number() == 1 {
				return record.Result{Outcome: record.EnvironmentError, Error: &record.Error{Retry: true}}
			}
			if j.Trial.Repetition == 5 {
				last = time.Now()
			}
			time.Sleep(time.Second) // in a synctest bubble
			return record.Result{Outcome: record.Passed}
		}}
		one := 1
		start := time.Now()
		var waits []time.Duration
		schedule(t, run.Spec{
			Plan: p, Store: r, Executor: f, Retry: retry, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &one}},
			Watch: func(e run.Event) {
				if e.Kind == run.Waiting {
					waits = append(waits, e.Wait)
				}
			},
		})
		if d := last.Sub(start); d > 10*time.Second { // in a synctest bubble: the time is exact
			t.Errorf("the last trial began after %s: the retry held the slot", d)
		}
		if len(waits) != 1 || waits[0] < 30*time.Second || waits[0] > time.Minute {
			t.Errorf("waited %v, want between half a minute and one", waits)
		}
		if got := counts(r)[record.Passed]; got != 5 {
			t.Errorf("%d passed", got)
		}
	})
}

// interruptible runs until it is cancelled, as core/trial does.
func interruptible(ctx context.Context, _ run.Job) record.Result {
	<-ctx.Done()
	return record.Result{Outcome: record.Cancelled}
}

func TestACancelEndsWhatRunsAndBeginsNothing(t *testing.T) {
	t.Parallel()
	p, r := cellsOf(t, 10)
	f := &fake{attempt: interruptible}
	three := 3
	ctx, cancel := context.WithCancel(t.Context())
	began := 0
	var stopping []string
	report, err := run.Schedule(ctx, run.Spec{
		Plan: p, Store: r, Executor: f, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &three}}, Retry: retry,
		Watch: func(e run.Event) {
			switch e.Kind {
			case run.Began:
				if began++; began == 3 {
					cancel()
				}
			case run.Stopping:
				stopping = append(stopping, e.Text)
			default:
			}
		},
	})
	cancel()
	if err != nil || report.Stopped != "interrupted" || report.Ran != 3 || !slices.Equal(stopping, []string{"interrupted"}) {
		t.Errorf("report %+v, %v, told %q", report, err, stopping)
	}
	if got := counts(r); !maps.Equal(got, map[record.Outcome]int{record.Cancelled: 3, record.NotRun: 7}) {
		t.Errorf("outcomes %v", got)
	}
	// When the run is resumed, everything runs, and the sum is the number of
	// planned trials.
	schedule(t, run.Spec{Plan: p, Store: r, Executor: &fake{attempt: always(record.Passed)}})
	if got := counts(r); !maps.Equal(got, map[record.Outcome]int{record.Passed: 10}) {
		t.Errorf("after the resume: %v", got)
	}
}

func TestTheBudgetOfTheRunEndsIt(t *testing.T) {
	t.Parallel()
	p, r := cellsOf(t, 10)
	one, limit, cost := 1, 3.0, 1.0
	o := run.Spec{
		Plan: p, Store: r, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &one}, Budget: cell.Budget{CostUSD: &limit}},
		Executor: &fake{attempt: func(context.Context, run.Job) record.Result {
			return record.Result{Outcome: record.Passed, Usage: []record.Usage{{CostUSD: &cost}}}
		}},
	}
	if report := schedule(t, o); report.Ran != 3 || report.Stopped == "" {
		t.Errorf("report %+v", report)
	}
	if report := schedule(t, o); report.Ran != 0 {
		t.Errorf("a resume forgot what was spent: %+v", report)
	}
}

// broken is an executor that cannot write its results.
type broken struct{ after atomic.Int64 }

func (b *broken) Attempt(_ context.Context, j run.Job) (record.Result, error) {
	if b.after.Add(-1) >= 0 {
		r := record.Result{Version: 1, Trial: j.Trial.ID, Outcome: record.Passed, Phases: []record.Phase{}}
		return r, j.Attempt.Publish(r)
	}
	return record.Result{}, errors.New("no space left on device")
}

func TestARunFolderThatCannotBeWrittenEndsTheRun(t *testing.T) {
	t.Parallel()
	p, r := cellsOf(t, 50)
	one := 1
	b := &broken{}
	b.after.Store(5)
	report := schedule(t, run.Spec{Plan: p, Store: r, Executor: b, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &one}}})
	if report.Broken == nil || report.Stopped == "" || report.Ran != 5 {
		t.Errorf("report %+v", report)
	}
	if got := counts(r); !maps.Equal(got, map[record.Outcome]int{record.Passed: 5, record.NotRun: 45}) {
		t.Errorf("outcomes %v", got)
	}
}

func TestAgainRunsWhatTheUserNamesAndNoMeasurement(t *testing.T) {
	t.Parallel()
	p, r := cellsOf(t, 3)
	byTrial := []record.Outcome{record.Passed, record.EnvironmentError, record.VerifierError}
	schedule(t, run.Spec{Plan: p, Store: r, Executor: &fake{attempt: func(_ context.Context, j run.Job) record.Result {
		return record.Result{Outcome: byTrial[j.Trial.Repetition-1]}
	}}})
	f := &fake{attempt: always(record.Passed)}
	schedule(t, run.Spec{Plan: p, Store: r, Executor: f})
	if len(f.began) != 0 {
		t.Errorf("settled trials were run again: %q", f.began)
	}
	schedule(t, run.Spec{Plan: p, Store: r, Executor: f, Again: []record.Outcome{record.EnvironmentError}})
	if len(f.began) != 1 || f.began[0] != p.Trials[1].ID {
		t.Errorf("ran %q", f.began)
	}
	if _, err := run.Schedule(t.Context(), run.Spec{Plan: p, Store: r, Executor: f, Again: []record.Outcome{record.Failed}}); err == nil {
		t.Error("a measurement was run again")
	}
}

func TestInvalidAndRefusedTrialsAreCountedAndNotRun(t *testing.T) {
	t.Parallel()
	p := trials(3)
	p.Trials[0].Invalid, p.Trials[1].Refused = "no instruction", "asks for several containers"
	r := storeOf(t, p)
	f := &fake{attempt: always(record.Passed)}
	schedule(t, run.Spec{Plan: p, Store: r, Executor: f, Again: []record.Outcome{record.TaskInvalid, record.NotRun}})
	if got := counts(r); !maps.Equal(got, map[record.Outcome]int{record.TaskInvalid: 1, record.NotRun: 1, record.Passed: 1}) {
		t.Errorf("outcomes %v", got)
	}
}

// refused is the result of an attempt whose request the budget of a cell or of
// the run refuses, as core/trial makes it.
func refused(scope record.Scope) record.Result {
	return record.Result{Outcome: record.NotRun, Error: &record.Error{Boundary: record.ByConfig, Message: "limit used", Stops: scope}}
}

func TestAnAttemptMayStopItsRun(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"in the middle": 3, "as the last": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, r := cellsOf(t, 10)
			one, n := 1, 0
			report := schedule(t, run.Spec{
				Plan: p, Store: r, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &one}}, Retry: retry,
				Executor: &fake{attempt: func(context.Context, run.Job) record.Result {
					if n++; n > before {
						return refused(record.ScopeRun)
					}
					return record.Result{Outcome: record.Passed}
				}},
			})
			if report.Ran != before+1 || report.Stopped != "limit used" {
				t.Errorf("report %+v", report)
			}
			if got := counts(r); !maps.Equal(got, map[record.Outcome]int{record.Passed: before, record.NotRun: 10 - before}) {
				t.Errorf("outcomes %v", got)
			}
			schedule(t, run.Spec{Plan: p, Store: r, Executor: &fake{attempt: always(record.Passed)}})
			if got := counts(r); !maps.Equal(got, map[record.Outcome]int{record.Passed: 10}) {
				t.Errorf("after the resume: %v", got)
			}
		})
	}
}

func TestAnAttemptMayStopItsCell(t *testing.T) {
	t.Parallel()
	p, r := cellsOf(t, 5, 5)
	one := 1
	report := schedule(t, run.Spec{
		Plan: p, Store: r, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &one}}, Retry: retry,
		Executor: &fake{attempt: func(_ context.Context, j run.Job) record.Result {
			if j.Trial.Cell == 1 {
				return refused(record.ScopeCell)
			}
			return record.Result{Outcome: record.Passed}
		}},
	})
	if report.Ran != 6 || report.Stopped != "cell agent=c1: limit used" {
		t.Errorf("report %+v", report)
	}
	if got := counts(r); !maps.Equal(got, map[record.Outcome]int{record.Passed: 5, record.NotRun: 5}) {
		t.Errorf("outcomes %v", got)
	}
}

// state makes a trial with attempts of these outcomes.
func state(task string, outcomes ...record.Outcome) *store.TrialState {
	t := &store.TrialState{Trial: &store.Trial{ID: task, Task: task}}
	for i, o := range outcomes {
		t.Attempts = append(t.Attempts, store.AttemptState{Number: i + 1, Result: &store.Brief{
			Outcome: o, Digests: map[string]string{"agent a": "sha256:0123456789abcdef"},
		}})
	}
	return t
}

func TestDriftIsOfWhatAttemptsWereMadeWith(t *testing.T) {
	t.Parallel()
	x := &store.Index{Trials: []*store.TrialState{state("t1", record.Passed), state("t2", record.Cancelled)}}
	for name, tt := range map[string]struct {
		now  map[string]string
		want string
	}{
		"the same":               {map[string]string{"agent a": "sha256:0123456789abcdef"}, ""},
		"another":                {map[string]string{"agent a": "sha256:fedcba9876543210"}, "agent a: sha256:0123456789ab → sha256:fedcba987654"},
		"not known now":          {nil, ""},
		"one that was not there": {map[string]string{"agent a": "sha256:0123456789abcdef", "agent b": "sha256:1"}, ""},
	} {
		var got []string
		for _, d := range run.Drifts(x, tt.now) {
			got = append(got, d.String())
		}
		if s := strings.Join(got, "; "); s != tt.want {
			t.Errorf("%s: %q, want %q", name, s, tt.want)
		}
	}
}

// Waits double up to the longest, and are randomised, so that trials that
// failed together are not retried together.
func TestWaitsDoubleAndAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := cellsOf(t, 1)
		var waits []time.Duration
		schedule(t, run.Spec{
			Plan: p, Store: r, Executor: &fake{attempt: failing(9, true)},
			Retry: experiment.Retry{Max: 4, On: []record.Outcome{record.EnvironmentError}, Wait: 20 * time.Second},
			Watch: func(e run.Event) {
				if e.Kind == run.Waiting {
					waits = append(waits, e.Wait)
				}
			},
		})
		for i, top := range []time.Duration{20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
			if len(waits) != 4 || waits[i] < top/2 || waits[i] > top {
				t.Errorf("waits %v: the one at %d is not between %s and %s", waits, i, top/2, top)
			}
		}
	})
}

// A resumed run continues with the retries where the killed process stopped.
func TestRetriesAreCountedAcrossProcesses(t *testing.T) {
	t.Parallel()
	failed := func(n int) *store.TrialState {
		ts := state("t")
		for i := range n {
			ts.Attempts = append(ts.Attempts, store.AttemptState{Number: i + 1, Result: &store.Brief{Outcome: record.EnvironmentError, Retryable: true}})
		}
		return ts
	}
	for n, want := range map[int]bool{0: true, 1: true, 2: true, 3: false} {
		if retries, open := run.Open(failed(n), retry, nil); open != want || open && retries != n {
			t.Errorf("after %d failures: open %t with %d retries, want %t", n, open, retries, want)
		}
	}
	cancelled := failed(1)
	cancelled.Attempts = append(cancelled.Attempts, store.AttemptState{Number: 2, Result: &store.Brief{Outcome: record.Cancelled}})
	if _, open := run.Open(cancelled, retry, nil); !open {
		t.Error("a retry that was cancelled is not made again")
	}
}

// A measured attempt is not retried, also when its error could go away.
func TestAMeasuredAttemptIsNotRetried(t *testing.T) {
	t.Parallel()
	broken := state("t", record.VerifierError)
	broken.Attempts[0].Result.AgentEnd, broken.Attempts[0].Result.Retryable = record.Yielded, true
	r := experiment.Retry{Max: 3, On: []record.Outcome{record.VerifierError}}
	if _, open := run.Open(broken, r, nil); open {
		t.Error("an attempt that counts as measured is retried")
	}
	if _, open := run.Open(broken, r, []record.Outcome{record.VerifierError}); !open {
		t.Error("it is not run again when the user asks for it")
	}
	// What the agent did is not a fault of the verifier: it has no other try.
	for _, o := range []record.Outcome{record.IntegrityViolation, record.ArtifactMissing} {
		own := state("t", o)
		own.Attempts[0].Result.AgentEnd = record.Yielded
		if _, open := run.Open(own, r, []record.Outcome{o}); open {
			t.Errorf("%s, which is measured, is run again", o)
		}
	}
}
