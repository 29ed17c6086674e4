package slurm

import (
	"strings"
	"testing"
)

// Whatever squeue prints, each of its lines is at most one job, and a reason to wait
// is not lost.
func FuzzStates(f *testing.F) {
	f.Add("12_0|PENDING|Resources\n12_1|RUNNING|None\n")
	f.Fuzz(func(t *testing.T, out string) {
		states := statesIn(out)
		if lines := strings.Count(out, "\n") + 1; len(states) > lines {
			t.Errorf("%d jobs in %d lines", len(states), lines)
		}
		for _, s := range states {
			if strings.ContainsAny(s.Job, "|\n") || !strings.Contains(out, s.Job) {
				t.Errorf("job %q of %q", s.Job, out)
			}
		}
	})
}
