package verifier

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/internal/wiretest"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
	"github.com/berth-eval/berth/plugins/proto/v1/verifierpb"
)

var words = wiretest.Words{
	reflect.TypeFor[model.Dialect](): string(model.DialectOpenAI), reflect.TypeFor[Decision](): string(Continue),
	reflect.TypeFor[Severity](): string(Exposed), reflect.TypeFor[Needs](): string(NeedsOwn),
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	wiretest.RoundTrip[Request](t, words, &verifierpb.VerifierRequest{})
	wiretest.RoundTrip[Traits](t, words, &pluginpb.VerifierTraits{})
}

func TestAVerdictThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verdict Verdict
		want    error
	}{
		"no decision":         {Verdict{}, fault.ErrInvalid},
		"an unknown decision": {Verdict{Decision: "perhaps"}, fault.ErrInvalid},
		"NaN":                 {Verdict{Decision: Scored, Scores: map[string]Score{"a": {Value: math.NaN()}}}, ErrBadReward},
		"infinite":            {Verdict{Decision: Scored, Scores: map[string]Score{"a": {Value: math.Inf(-1)}}}, ErrBadReward},
		"finding unweighed":   {Verdict{Decision: Pass, Findings: []Finding{{Code: "odd"}}}, fault.ErrInvalid},
	} {
		if _, err := wire.Decode[Verdict](wire.Encode(&verifierpb.Verdict{}, tt.verdict)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if _, err := wire.Decode[Verdict]((*verifierpb.Verdict)(nil)); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("no verdict: %v, want ErrInvalid", err)
	}
	v, err := wire.Decode[Verdict](&verifierpb.Verdict{
		Decision: verifierpb.VerdictDecision_VERDICT_DECISION_SCORED, Scores: map[string]*verifierpb.Score{"a": {Value: 0}},
	})
	if s := v.Scores["a"]; err != nil || s.Min != nil || s.Max != nil {
		t.Errorf("a score without bounds has %+v, %v; absent is not 0", s, err)
	}
}

// The scores of stages and trials are added up, and their squares, too. All of that is
// stored as JSON, which has no infinity.
func TestAScoreIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		score Score
		valid bool
	}{
		{Score{Value: 0.5, Min: new(0.0), Max: new(1.0)}, true},
		{Score{Value: 1e100}, true},
		{Score{Value: -1e100}, true},
		{Score{Value: 1.7e308}, false},
		{Score{Value: math.NaN()}, false},
		{Score{Value: math.Inf(-1)}, false},
		{Score{Max: new(math.Inf(1))}, false},
		{Score{Min: new(-1e101)}, false},
		{Score{Value: 2, Max: new(1.0)}, false},
	} {
		if err := tt.score.Valid(); (err == nil) != tt.valid || err != nil && !errors.Is(err, ErrBadReward) {
			t.Errorf("%+v: %v, want valid: %t", tt.score, err, tt.valid)
		}
	}
}
