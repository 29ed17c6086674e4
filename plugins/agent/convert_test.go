package agent

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wiretest"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
)

var words = wiretest.Words{
	reflect.TypeFor[model.Dialect](): string(model.DialectAnthropic), reflect.TypeFor[Role](): string(RoleUser), reflect.TypeFor[End](): string(Refused),
}

// A field that is added to a message and forgotten in a converter fails here.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	check := func(r CheckRequest) *agentpb.AgentCheckRequest { return checkToProto("", r) }
	back := func(p *agentpb.AgentCheckRequest) (CheckRequest, error) {
		p.Plugin = "" // the name of the plugin is not part of the request
		return checkFromProto(p)
	}
	wiretest.RoundTrip(t, words, check, back)
	wiretest.RoundTrip(t, words, needsToProto, needsFromProto)
	wiretest.RoundTrip(t, words, setupToProto, setupFromProto)
	wiretest.RoundTrip(t, words, messageToProto, messageFromProto)
	wiretest.RoundTrip(t, words, yieldToProto, yieldFromProto)
}

func TestEveryWordTravels(t *testing.T) {
	t.Parallel()
	for _, r := range []Role{RoleAgent, RoleUser, RoleOracle} {
		if got, err := roles.From(roles.To(r)); got != r || err != nil {
			t.Errorf("role %q comes back as %q, %v", r, got, err)
		}
	}
	for _, e := range []End{Done, Asked, MaxSteps, Refused, Crashed} {
		if got, err := ends.From(ends.To(e)); got != e || err != nil {
			t.Errorf("end %q comes back as %q, %v", e, got, err)
		}
	}
}

func TestWhatIsNotGivenIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := setupFromProto(&agentpb.SessionSetup{}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("a set-up without a role: %v, want ErrInvalid", err)
	}
	if _, err := checkFromProto(&agentpb.AgentCheckRequest{Role: 99}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("an unknown role: %v, want ErrInvalid", err)
	}
	if _, err := yieldFromProto(&agentpb.AgentYield{}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("a yield without an end: %v, want ErrInvalid", err)
	}
	if _, err := setupFromProto(nil); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("no set-up: %v, want ErrInvalid", err)
	}
	if s, err := setupFromProto(setupToProto(Setup{Role: RoleAgent, Limits: Limits{Time: time.Microsecond}})); err != nil || s.Limits.Time != time.Millisecond {
		t.Errorf("a limit of 1µs is %v, %v; want one that is not 0", s.Limits.Time, err)
	}
}

// The costs of all turns are added up and stored as JSON, which has no infinity.
func TestAnImpossibleCostIsNotReported(t *testing.T) {
	t.Parallel()
	for cost, kept := range map[float64]bool{0: true, 1.5: true, -1: false, 1.7e308: false, math.Inf(1): false, math.NaN(): false} {
		y, err := yieldFromProto(yieldToProto(Yield{End: Done, Claim: &Claim{Input: new(int64), Cost: &cost}}))
		if err != nil || y.Claim.Input == nil || (y.Claim.Cost != nil) != kept {
			t.Errorf("a cost of %g: %+v, %v", cost, y.Claim, err)
		}
	}
}
