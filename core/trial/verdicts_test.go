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
