package agent

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/internal/wiretest"
	"github.com/berth-eval/berth/plugins/model"
	pb "github.com/berth-eval/berth/plugins/proto/v1/agentpb"
)

var words = wiretest.Words{
	reflect.TypeFor[model.Dialect](): string(model.DialectAnthropic), reflect.TypeFor[Role](): string(RoleUser), reflect.TypeFor[End](): string(MaxSteps),
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	wiretest.RoundTrip[CheckRequest](t, words, &pb.AgentCheckRequest{}, "plugin")
	wiretest.RoundTrip[Needs](t, words, &pb.AgentNeeds{})
	wiretest.RoundTrip[Setup](t, words, &pb.SessionSetup{})
	wiretest.RoundTrip[Message](t, words, &pb.TurnMessage{})
	wiretest.RoundTrip[Yield](t, words, &pb.AgentYield{})
}

func TestWhatIsNotGivenIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := wire.Decode[Setup](&pb.SessionSetup{}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("a set-up without a role: %v, want ErrInvalid", err)
	}
	if _, err := wire.Decode[CheckRequest](&pb.AgentCheckRequest{Role: 99}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("an unknown role: %v, want ErrInvalid", err)
	}
	if s, err := wire.Decode[Setup](wire.Encode(&pb.SessionSetup{}, Setup{Role: RoleAgent, Limits: Limits{Time: time.Microsecond}})); err != nil || s.Limits.Time != time.Millisecond {
		t.Errorf("a limit of 1µs is %v, %v; want one that is not 0", s.Limits.Time, err)
	}
}

// The costs of all turns are added up and stored as JSON, which has no infinity.
func TestAnImpossibleCostIsNotReported(t *testing.T) {
	t.Parallel()
	for cost, kept := range map[float64]bool{0: true, 1.5: true, -1: false, 1.7e308: false, math.Inf(1): false, math.NaN(): false} {
		y, err := yieldFromProto(wire.Encode(&pb.AgentYield{}, Yield{End: Done, Claim: &Claim{Input: new(int64), Cost: &cost}}))
		if err != nil || y.Claim.Input == nil || (y.Claim.Cost != nil) != kept {
			t.Errorf("a cost of %g: %+v, %v", cost, y.Claim, err)
		}
	}
}
