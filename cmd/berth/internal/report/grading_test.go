package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

func TestAnAttemptSaysWhoGradedItByWhichRule(t *testing.T) {
	t.Parallel()
	one := 1.0
	r := &record.Result{
		Outcome: record.Failed, Graders: map[string]string{"script": "rows"}, Success: &task.Success{Score: "reward", Reduce: task.ReduceMin, AtLeast: &one},
		Verdicts: []verifier.Verdict{{Verifier: "script", Decision: verifier.Pass}},
	}
	for stages, want := range map[int]string{1: "rule       reward >= 1\n", 2: "rule       min of reward >= 1\n"} {
		r.Stages = make([]record.StageResult, stages)
		var b bytes.Buffer
		report.AttemptText(&terminal.Printer{Out: &b}, &output.ShowFull{Result: r}, false)
		if text := b.String(); !strings.Contains(text, want) || !strings.Contains(text, "verdict    script (plugin rows): pass") {
			t.Errorf("%d stages:\n%s", stages, text)
		}
	}
	for want, s := range map[string]task.Success{
		"the decisions of the verifiers": {}, "tests, without a threshold": {Score: "tests"},
	} {
		if got := report.Rule(&s, 1); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
