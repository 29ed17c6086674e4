package model

import (
	"errors"
	"reflect"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/internal/wiretest"
	pb "github.com/berth-eval/berth/plugins/proto/v1/modelpb"
)

var words = wiretest.Words{reflect.TypeFor[Dialect](): string(DialectOpenAIChat)}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	wiretest.RoundTrip[Endpoint](t, words, &pb.ModelEndpoint{})
	wiretest.RoundTrip[Info](t, words, &pb.ModelInfo{})
}

func TestAModelWithoutADialectIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := wire.Decode[Endpoint](&pb.ModelEndpoint{Name: "m"}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("an endpoint: %v, want ErrInvalid", err)
	}
	if _, err := wire.Decode[Info](&pb.ModelInfo{Name: "m"}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("a description: %v, want ErrInvalid", err)
	}
	if _, err := wire.Decode[Endpoint](&pb.ModelEndpoint{Dialect: "gemini", ParametersJson: []byte("{")}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("parameters that are not JSON: %v, want ErrInvalid", err)
	}
}
