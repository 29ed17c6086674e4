package environment

import (
	"errors"
	"reflect"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/internal/wiretest"
	pb "github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

var words = wiretest.Words{reflect.TypeFor[NetworkMode](): string(NetworkPublic), reflect.TypeFor[Grant](): string(GrantBestEffort)}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	wiretest.RoundTrip[Spec](t, words, &pb.SandboxSpec{})
	wiretest.RoundTrip[Report](t, words, &pb.EnvironmentCheckReply{})
	wiretest.RoundTrip[Sandbox](t, words, &pb.SandboxMade{})
	wiretest.RoundTrip[Remains](t, words, &pb.DestroyReply{})
	wiretest.RoundTrip[KeptImage](t, words, &pb.KeptImage{})
	wiretest.RoundTrip[prepared](t, words, &pb.PrepareRequest{}, "plugin")
	wiretest.RoundTrip[SurfaceNeeds](t, words, &pb.SurfaceNeeds{})
	wiretest.RoundTrip[SurfaceRequest](t, words, &pb.SurfaceNeedsRequest{}, "plugin")
	wiretest.RoundTrip[SurfaceSpec](t, words, &pb.SurfaceSpec{})
	wiretest.RoundTrip[Start](t, words, &pb.ResetRequest{}, "plugin", "id")
	wiretest.RoundTrip[Call](t, words, &pb.ActRequest{}, "plugin", "id", "want")
	wiretest.RoundTrip[Capture](t, words, &pb.CaptureRequest{}, "plugin", "id")
	wiretest.RoundTrip[Offer](t, words, &pb.ActionsReply{})
	wiretest.RoundTrip[Step](t, words, &pb.SurfaceStep{})
}

func TestWhatIsNotGivenIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := wire.Decode[Spec](&pb.SandboxSpec{}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("a spec without a network mode: %v, want ErrInvalid", err)
	}
	if _, err := wire.Decode[Spec]((*pb.SandboxSpec)(nil)); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("no spec: %v, want ErrInvalid", err)
	}
	if _, err := wire.Decode[Granted](&pb.SandboxGranted{Cpu: 77}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("an unknown grant: %v, want ErrInvalid", err)
	}
	if s, err := wire.Decode[Step]((*pb.SurfaceStep)(nil)); err != nil || s.Reward != nil {
		t.Errorf("a step without anything = %+v, %v; want no reward", s, err)
	}
}
