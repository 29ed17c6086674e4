package environment

import (
	"errors"
	"reflect"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wiretest"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

var words = wiretest.Words{reflect.TypeFor[NetworkMode](): string(NetworkPublic), reflect.TypeFor[Grant](): string(GrantBestEffort)}

// sure is a converter that cannot fail.
func sure[P, G any](f func(P) G) func(P) (G, error) {
	return func(p P) (G, error) { return f(p), nil }
}

// A field that is added to a message and forgotten in a converter fails here.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	wiretest.RoundTrip(t, words, specToProto, specFromProto)
	wiretest.RoundTrip(t, words, imageToProto, sure(imageFromProto))
	wiretest.RoundTrip(t, words, reportToProto, reportFromProto)
	wiretest.RoundTrip(t, words, sandboxToProto, sandboxFromProto)
	wiretest.RoundTrip(t, words, remainsToProto, remainsFromProto)
	wiretest.RoundTrip(t, words, needsToProto, needsFromProto)
	wiretest.RoundTrip(t, words, surfaceSpecToProto, surfaceSpecFromProto)
	wiretest.RoundTrip(t, words, actionToProto, actionFromProto)
	wiretest.RoundTrip(t, words, observationToProto, observationFromProto)
	wiretest.RoundTrip(t, words, stepToProto, stepFromProto)
}

func TestEveryWordTravels(t *testing.T) {
	t.Parallel()
	for _, m := range []NetworkMode{NetworkNone, NetworkAllow, NetworkPublic} {
		if got, err := networkModes.From(networkModes.To(m)); got != m || err != nil {
			t.Errorf("network mode %q comes back as %q, %v", m, got, err)
		}
	}
	for _, g := range []Grant{"", GrantEnforced, GrantBestEffort, GrantNo} {
		if got, err := grants.From(grants.To(g)); got != g || err != nil {
			t.Errorf("grant %q comes back as %q, %v", g, got, err)
		}
	}
}

func TestWhatIsNotGivenIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := specFromProto(specToProto(Spec{})); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("a spec without a network mode: %v, want ErrInvalid", err)
	}
	if _, err := specFromProto(nil); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("no spec: %v, want ErrInvalid", err)
	}
	if _, err := sandboxFromProto(nil); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("no sandbox: %v, want ErrInvalid", err)
	}
	if _, err := sandboxFromProto(&environmentpb.SandboxMade{Id: "x", Granted: &environmentpb.SandboxGranted{Cpu: 77}}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("an unknown grant: %v, want ErrInvalid", err)
	}
	if s, err := stepFromProto(nil); err != nil || s.Reward != nil {
		t.Errorf("a step without anything = %+v, %v; want no reward", s, err)
	}
}
