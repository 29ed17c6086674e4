package trial_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// A closed loop is judged again by another supervisor: round by round, from the
// copies, with what was there to be seen then, and without a turn.
func TestAClosedLoopIsJudgedAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		decides []verifier.Decision // of the other supervisor
		outcome record.Outcome
		seen    string // by it: round, messages left, number in the copy, turns and verdicts of its own
		final   string // by the last verifier: turns, whether the loop is over, and verdicts
		note    string
	}{
		"as before":   {[]verifier.Decision{verifier.Continue, verifier.Pass}, record.Passed, "1 3 1 1 0, 2 2 11 2 1", "2 true 2", ""},
		"a failure":   {[]verifier.Decision{verifier.Continue, verifier.Fail}, record.Failed, "1 3 1 1 0, 2 2 11 2 1", "2 true 2", ""},
		"earlier":     {[]verifier.Decision{verifier.Pass}, record.Passed, "1 3 1 1 0", "1 false 1", "rounds_left"},
		"never ended": {[]verifier.Decision{verifier.Continue, verifier.Continue}, record.Passed, "1 3 1 1 0, 2 2 11 2 1", "2 true 2", "rounds_over"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withRounds(t)
			b.judges["final"] = looks(func(verifier.Request) bool { return true })
			first := b.run(t.Context(), t)
			want(t, first, record.Passed, record.Yielded, record.Checked)
			var seen []string
			view := func(r verifier.Request) (turns int, over bool, verdicts int) {
				record, err := os.ReadFile(filepath.Join(r.View, "attempt/turns.jsonl"))
				if err != nil {
					t.Error(err)
				}
				judged, _ := os.ReadFile(filepath.Join(r.View, "attempt/verdicts.jsonl"))
				return strings.Count(string(record), `"kind":"yield"`), strings.Contains(string(record), `"kind":"over"`), strings.Count(string(judged), "\n")
			}
			other := &judge{traits: verifier.Traits{Needs: verifier.NeedsNone, Rounds: true}, verify: func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
				n, err := os.ReadFile(filepath.Join(r.View, "attempt/artifacts/logs/artifacts/n"))
				turns, over, verdicts := view(r)
				if over || len(r.Earlier) != verdicts {
					t.Errorf("round %d: over %v, %d verdicts of before, %d in the record", r.Round, over, len(r.Earlier), verdicts)
				}
				seen = append(seen, fmt.Sprintf("%d %d %s %d %d", r.Round, r.RoundsLeft, n, turns, verdicts))
				return reward(tt.decides[r.Round-1], 0.5), err
			}}
			final := ""
			c := newBench(t, does("false"), nil)
			c.cell.User = b.cell.User
			c.judges["supervisor"], c.judges["final"] = other, looks(func(r verifier.Request) bool {
				turns, over, verdicts := view(r)
				final = fmt.Sprintf("%d %v %d", turns, over, verdicts)
				return len(r.Earlier) == 1 && r.Earlier[0].Decision != verifier.Fail
			})
			got := c.regrade(t, b, first)
			if got.Outcome != tt.outcome || strings.Join(seen, ", ") != tt.seen || final != tt.final || tt.note != "" && !found(got, tt.note) {
				t.Errorf("%s; seen %q, at the end %q; want %s, %q, %q and %q\n%s", got.Outcome, seen, final, tt.outcome, tt.seen, tt.final, tt.note, pretty(got))
			}
			if strings.Contains(phases(got), "turn") || got.Steps != first.Steps || got.AgentTime != first.AgentTime {
				t.Errorf("phases %s, %d steps, %s; the first attempt had %d, %s", phases(got), got.Steps, got.AgentTime, first.Steps, first.AgentTime)
			}
		})
	}
}

// Without the copies of a round, there is nothing that could be judged again.
func TestALoopWithoutItsCopiesIsNotJudgedAgain(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/logs/artifacts"}}
	b.judges["final"] = looks(func(verifier.Request) bool { return true })
	first := b.run(t.Context(), t)
	if err := os.RemoveAll(filepath.Join(b.dir, record.RoundsDir, "2")); err != nil {
		t.Fatal(err)
	}
	c := newBench(t, does("false"), nil)
	c.cell.User, c.judges = b.cell.User, b.judges
	if got := c.regrade(t, b, first); got.Error == nil || !strings.Contains(got.Error.Message, "the copies of round 2 were not kept") {
		t.Errorf("%s", pretty(got))
	}
}
