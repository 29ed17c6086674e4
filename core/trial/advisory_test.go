package trial_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

func fails(err error) *judge {
	return &judge{
		traits: verifier.Traits{Needs: verifier.NeedsNone, Rounds: true},
		verify: func(context.Context, verifier.Request) (verifier.Verdict, error) { return verifier.Verdict{}, err },
	}
}

// Whatever way a verifier that only advises fails, the verdict before it stands. The
// same verifier ends the attempt if it does not only advise.
func TestTheErrorOfAnAdvisoryVerifierIsAFinding(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"an error": errors.New("no idea"), "a missing artifact": verifier.ErrArtifactMissing, "a bad score": verifier.ErrBadReward,
	} {
		for _, advisory := range []bool{false, true} {
			b := newBench(t, does("true"), says(verifier.Judge(true, "fine")))
			b.judges["adviser"], b.judges["last"] = fails(err), says(verifier.Verdict{Decision: verifier.Scored, Scores: map[string]verifier.Score{"style": {Value: 3}}})
			b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "judge"}, {Name: "adviser", Advisory: advisory}, {Name: "last"}}
			r := b.run(t.Context(), t)
			found := slices.IndexFunc(r.Findings, func(f record.Finding) bool { return f.Code == "advisory_failed" })
			if !advisory {
				if r.Outcome == record.Passed || found >= 0 {
					t.Errorf("%s, not advisory: %s, %+v", name, r.Outcome, r.Findings)
				}
				continue
			}
			if r.Outcome != record.Passed || len(r.Verdicts) != 2 || r.Scores["style"] != 3 || found < 0 || !strings.Contains(r.Findings[found].Text, "adviser: "+err.Error()) {
				t.Errorf("%s: %s, %+v, verdicts %+v, findings %+v", name, r.Outcome, r.Error, r.Verdicts, r.Findings)
			}
		}
	}
}

// Processes that a verifier left at its deadline take no room from the next one, and
// are not a sign that the agent has broken its sandbox.
func TestTestsThatForkForEver(t *testing.T) {
	t.Parallel()
	for _, advisory := range []bool{false, true} {
		b := newBench(t, does("true"), tests("perl -e 'fork while 1'"))
		b.judges["last"] = tests("sleep 0.1 & wait $!")
		b.cell.Environment.Config = cell.PlainValues(json.RawMessage(`{"pids":64}`))
		b.task.Stages[0].Verify.Time, b.task.Stages[0].Verify.TimeKey = task.Seconds(2), "verifier.timeout_sec"
		b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "judge", Advisory: advisory}, {Name: "last"}}
		r := b.run(t.Context(), t)
		if advisory {
			want(t, r, record.Passed, record.Yielded, record.Checked)
			continue
		}
		want(t, r, record.VerifierError, record.Yielded, record.Unknown)
		if r.Error == nil || r.Error.Boundary != record.ByVerifier || r.Error.Message != "verifier judge: the tests were stopped after 2 s (verifier.timeout_sec)" {
			t.Errorf("error %+v; want that the tests were stopped", r.Error)
		}
	}
}

// In a round, too: the verdicts of the others decide whether it goes on.
func TestAnAdvisoryVerifierThatFailsInARound(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	b.judges["adviser"] = fails(errors.New("no idea"))
	b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "supervisor"}, {Name: "adviser", Advisory: true}}
	r := b.run(t.Context(), t)
	failed := 0
	for _, f := range r.Findings {
		if f.Code == "advisory_failed" {
			failed++
		}
	}
	if r.Outcome != record.Passed || len(r.Verdicts) != 1 || failed != 2 {
		t.Errorf("%s, %+v, verdicts %+v, %d findings", r.Outcome, r.Error, r.Verdicts, failed)
	}
}

// An attempt that is cancelled while the adviser works has no result.
func TestACancelIsNoAdvice(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := newBench(t, does("true"), says(verifier.Judge(true, "fine")))
	b.judges["adviser"] = &judge{
		traits: verifier.Traits{Needs: verifier.NeedsNone},
		verify: func(ctx context.Context, _ verifier.Request) (verifier.Verdict, error) {
			cancel()
			<-ctx.Done()
			return verifier.Verdict{}, ctx.Err()
		},
	}
	b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "judge"}, {Name: "adviser", Advisory: true}}
	if r := b.run(ctx, t); r.Outcome != record.Cancelled {
		t.Errorf("%s, %+v", r.Outcome, r.Findings)
	}
}
