package trial

import (
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// Chance is the same for the same task and repetition, whatever else there is, and
// another one for others.
func TestTheSeedIsOfTaskAndRepetition(t *testing.T) {
	t.Parallel()
	of := func(name, digest string, repetition int, session string, rest Input) int64 {
		rest.Task, rest.Repetition = &task.Task{Name: name, Digest: digest}, repetition
		return rest.seed(session)
	}
	want := of("a", "sha256:1", 1, "agent-1", Input{})
	if got := of("a", "sha256:1", 1, "agent-1", Input{Run: "r-2", Trial: "t2", Attempt: 2, Host: "other"}); got != want || want < 0 {
		t.Errorf("%d and %d, want the same number from 0 on", got, want)
	}
	seen := map[int64]bool{want: true}
	for _, other := range []int64{
		of("b", "sha256:1", 1, "agent-1", Input{}), of("a", "sha256:2", 1, "agent-1", Input{}), of("a", "sha256:1", 2, "agent-1", Input{}), of("a", "sha256:1", 1, "agent-2", Input{}),
	} {
		if seen[other] {
			t.Errorf("%d twice", other)
		}
		seen[other] = true
	}
}
