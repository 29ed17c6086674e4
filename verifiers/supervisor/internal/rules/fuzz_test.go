package rules

import (
	"encoding/json"
	"testing"

	"github.com/berth-eval/berth/plugins/verifier"
)

// Whatever a model judges, the score is from 0 to 1, the decision is one of three,
// and the user is told nothing that the model wrote.
func FuzzJudgement(f *testing.F) {
	f.Add([]byte(`{"verdict":"pass","attempt_state":"complete_and_passed","score":1,"confidence":"high","rationale":"it is there"}`), 2)
	f.Fuzz(func(t *testing.T, text []byte, left int) {
		var r Reply
		if json.Unmarshal(text, &r) != nil {
			return
		}
		j, err := Check(r)
		if err != nil {
			return
		}
		j, _ = j.Normalised(left).Gated(Complete, left)
		if j.Score < 0 || j.Score > 1 || j.Score != j.Score {
			t.Errorf("score %g", j.Score)
		}
		switch j.Verdict {
		case verifier.Pass, verifier.Continue, verifier.Fail:
		default:
			t.Errorf("decision %q", j.Verdict)
		}
		if !json.Valid([]byte(j.Handoff(true))) {
			t.Errorf("handoff %q", j.Handoff(true))
		}
	})
}
