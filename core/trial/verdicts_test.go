package trial_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// says is a verifier that returns v and inspects nothing.
func says(v verifier.Verdict) *judge {
	return &judge{
		traits: verifier.Traits{Needs: verifier.NeedsNone},
		verify: func(context.Context, verifier.Request) (verifier.Verdict, error) { return v, nil },
	}
}

// The rule of most tasks names a score. If a verifier gives only a decision,
// the decision counts.
func TestWhatAVerdictIsWorthWhereTheRuleNamesAScore(t *testing.T) {
	t.Parallel()
	zero, one := 0.0, 1.0
	score := func(name string, s verifier.Score) map[string]verifier.Score {
		return map[string]verifier.Score{name: s}
	}
	above := verifier.Verdict{Decision: verifier.Scored, Scores: score("reward", verifier.Score{Value: 1.5, Min: &zero, Max: &one})}
	for _, tt := range []struct {
		name    string
		verdict verifier.Verdict
		want    record.Outcome
		err     string // a part of the message; empty: no error
	}{
		{"pass", verifier.Judge(true, "fine"), record.Passed, ""},
		{"fail", verifier.Judge(false, "wrong"), record.Failed, ""},
		{"the score", reward(verifier.Scored, 1), record.Passed, ""},
		{"the score, against the decision", reward(verifier.Pass, 0), record.Failed, ""},
		{"another score", verifier.Verdict{Decision: verifier.Scored, Scores: score("accuracy", verifier.Score{Value: 1})}, record.Scored, ""},
		{"another score and a pass", verifier.Verdict{Decision: verifier.Pass, Scores: score("accuracy", verifier.Score{Value: 0})}, record.Passed, ""},
		{"above its own maximum", above, record.VerifierError, "above its own maximum of 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does("true"), says(tt.verdict))
			b.task.Success = task.Success{Score: "reward", AtLeast: &one}
			r := b.run(t.Context(), t)
			if r.Outcome != tt.want || (r.Error == nil) != (tt.err == "") || r.Error != nil && !strings.Contains(r.Error.Message, tt.err) {
				t.Errorf("%s, %+v; want %s, %q", r.Outcome, r.Error, tt.want, tt.err)
			}
		})
	}
}

// Labels reach the result. The later verifier counts, and no secret is kept.
func TestLabelsOfVerdicts(t *testing.T) {
	t.Parallel()
	label := func(labels map[string]string) *judge {
		return says(verifier.Verdict{Decision: verifier.Pass, Labels: labels})
	}
	b := newBench(t, does("true"), label(map[string]string{"status": "hush-hush", "first": "yes"}))
	b.judges["second"] = label(map[string]string{"status": "pass", "hush-hush": "is hush-hush"})
	b.task.Stages[0].Verifiers = append(b.task.Stages[0].Verifiers, task.VerifierUse{Name: "second"})
	b.cell.Secrets = append(b.cell.Secrets, "hush-hush")
	r := b.run(t.Context(), t)
	if len(r.Labels) != 3 || r.Labels["status"] != "pass" || r.Labels["first"] != "yes" || strings.Contains(pretty(r), "hush-hush") {
		t.Errorf("%s, labels %v", r.Outcome, r.Labels)
	}
	if r.Verdicts[0].Labels["status"] == "pass" || !maps.Equal(r.Verdicts[0].Labels, map[string]string{"status": r.Verdicts[0].Labels["status"], "first": "yes"}) {
		t.Errorf("first verdict: %v", r.Verdicts[0].Labels)
	}
	b = newBench(t, does("true"), label(map[string]string{"status": strings.Repeat("x", verifier.MaxLabelBytes+1)}))
	if r = b.run(t.Context(), t); r.Outcome != record.VerifierError || !strings.Contains(r.Error.Message, `label "status" has 201 bytes`) {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}
