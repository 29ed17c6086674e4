package trial_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
)

// The trajectory from which the agent continues is part of the trial's id: one that
// was edited after the plan was made is not used.
func TestAPriorTrajectoryThatChangedIsNotUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "before.json")
	sum := sha256.Sum256([]byte("before"))
	for content, want := range map[string]record.Outcome{"before": record.Passed, "edited": record.NotRun} {
		testlevel.Must(t, os.WriteFile(file, []byte(content), 0o600))
		prior := ""
		a := &scripted{needs: agent.Needs{Shell: true, TakesPrior: true}, open: func(_ context.Context, s agent.Setup) error {
			prior = s.Prior
			return nil
		}}
		b := newBench(t, a, tests("true"))
		b.cell.Agent.Prior, b.cell.Agent.PriorDigest = file, "sha256:"+hex.EncodeToString(sum[:])
		r := b.run(t.Context(), t)
		if r.Outcome != want || (prior == file) != (want == record.Passed) {
			t.Errorf("%s: %s, the agent got %q", content, r.Outcome, prior)
		}
		if want == record.NotRun && (r.Error == nil || !strings.Contains(r.Error.Message, "changed since")) {
			t.Errorf("%s: %+v", content, r.Error)
		}
	}
}
