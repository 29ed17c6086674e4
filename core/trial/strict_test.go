package trial_test

import (
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
)

// In a strict experiment, an exposed result is verified a second time: it is what
// it was, or a violation. Without it, a tool that forges the result passes.
func TestAnExposedResultIsVerifiedAgain(t *testing.T) {
	t.Parallel()
	const (
		forges  = `printf '#!/bin/sh\necho 42\n' > /usr/local/bin/answer; chmod +x /usr/local/bin/answer`
		honest  = forges + `; echo 42 > /app/x`
		forged  = `test "$(answer)" = 42`
		robust  = `test "$(cat /app/x)" = 42`
		changes = robust + ` && rm /app/x`
	)
	for _, tt := range []struct {
		name, does, test string
		mode             task.Mode
		strict           bool
		outcome          record.Outcome
		integrity        record.Integrity
		again            record.Outcome
		finding          string
	}{
		{"not strict, a tool forges", forges, forged, task.ModeLive, false, record.Passed, record.Exposed, "", "tools_changed"},
		{"a tool forges", forges, forged, task.ModeLive, true, record.IntegrityViolation, record.Violated, record.Failed, "verdicts_differ"},
		{"a tool forges, restarted", forges, forged, task.ModeRestarted, true, record.IntegrityViolation, record.Violated, record.Failed, "verdicts_differ"},
		{"a tool that the tests do not use", honest, robust, task.ModeLive, true, record.Passed, record.Checked, record.Passed, "graded_again"},
		{"the tests change what they tested", honest, changes, task.ModeLive, true, record.Passed, record.Checked, record.Passed, "graded_again"},
		{"it fails both times", forges, robust, task.ModeRestarted, true, record.Failed, record.Checked, record.Failed, "graded_again"},
		{"nothing is exposed", "echo 42 > /app/x", robust, task.ModeLive, true, record.Passed, record.Checked, "", ""},
		{"a server is needed and a tool changed", forges + "\n" + listener, asks, task.ModeLive, true, record.Passed, record.Exposed, record.Failed, "needs_live"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), tests(tt.test))
			b.task.Mode, b.cell.Strict = tt.mode, tt.strict
			r := b.run(t.Context(), t)
			want(t, r, tt.outcome, record.Yielded, tt.integrity)
			again := r.Stages[0].Again
			if got := again != nil; got != (tt.again != "") || got && (again.Outcome != tt.again || len(again.Verdicts) != 1) {
				t.Errorf("second verification %+v; want %q", again, tt.again)
			}
			if tt.finding != "" && !found(r, tt.finding) {
				t.Errorf("no finding %s: %s", tt.finding, pretty(r.Findings))
			}
		})
	}
}
