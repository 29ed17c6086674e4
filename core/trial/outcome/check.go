package outcome

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Check refuses a verdict that is empty or impossible.
func Check(v verifier.Verdict) error {
	switch v.Decision {
	case verifier.Pass, verifier.Fail, verifier.Continue, verifier.Scored:
	default:
		return fmt.Errorf("unknown decision %q", v.Decision)
	}
	if len(v.Scores) > limits.Scores {
		return fmt.Errorf("%w: %d scores, at most %d are allowed", verifier.ErrBadReward, len(v.Scores), limits.Scores)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Scores)) {
		if err := v.Scores[name].Valid(); err != nil {
			return fmt.Errorf("score %q: %w", name, err)
		}
	}
	if err := v.ValidLabels(); err != nil {
		return err
	}
	size := len(v.Handoff) + len(v.Rationale)
	for _, c := range v.Checkpoints {
		size += len(c.Name) + len(c.Note)
		if math.IsNaN(c.Weight) || math.IsInf(c.Weight, 0) {
			return fmt.Errorf("%w: checkpoint %q has the weight %g", verifier.ErrBadReward, c.Name, c.Weight)
		}
	}
	if size > limits.VerdictBytes {
		return fmt.Errorf("its texts have %d bytes, at most %d are allowed", size, limits.VerdictBytes)
	}
	return nil
}
