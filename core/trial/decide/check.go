package decide

import (
	"fmt"
	"math"

	"github.com/berth-eval/berth/core/trial/bound"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Check refuses a verdict that says nothing, or what cannot be.
func Check(v verifier.Verdict) error {
	switch v.Decision {
	case verifier.Pass, verifier.Fail, verifier.Continue, verifier.Scored:
	default:
		return fmt.Errorf("its decision is %q, which is none", v.Decision)
	}
	if len(v.Scores) > bound.Scores {
		return fmt.Errorf("%w: %d scores, at most %d are allowed", verifier.ErrBadReward, len(v.Scores), bound.Scores)
	}
	for name, sc := range v.Scores {
		if math.IsNaN(sc.Value) || math.IsInf(sc.Value, 0) {
			return fmt.Errorf("%w: score %q is %v", verifier.ErrBadReward, name, sc.Value)
		}
	}
	size := len(v.Handoff) + len(v.Rationale)
	for _, c := range v.Checkpoints {
		size += len(c.Name) + len(c.Note)
	}
	if size > bound.VerdictBytes {
		return fmt.Errorf("its texts have %d bytes, at most %d are allowed", size, bound.VerdictBytes)
	}
	return nil
}
