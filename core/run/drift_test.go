package run_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

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
