package trial_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Without the copies of a round, there is nothing that could be judged again.
func TestALoopWithoutItsCopiesIsNotJudgedAgain(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/logs/artifacts"}}
	b.judges["final"] = looks(func(verifier.Request) bool { return true })
	first := b.run(t.Context(), t)
	testlevel.Must(t, os.RemoveAll(filepath.Join(b.dir, record.RoundsDir, "2")))
	c := newBench(t, does("false"), nil)
	c.cell.User, c.judges = b.cell.User, b.judges
	if got := c.regrade(t, b, first); got.Error == nil || !strings.Contains(got.Error.Message, "the copies of round 2 were not kept") {
		t.Errorf("%s", pretty(got))
	}
}
