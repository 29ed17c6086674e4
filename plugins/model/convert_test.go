package model

import (
	"errors"
	"reflect"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wiretest"
)

var words = wiretest.Words{reflect.TypeFor[Dialect](): string(DialectOpenAIChat)}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	wiretest.RoundTrip(t, words, EndpointToProto, EndpointFromProto)
	wiretest.RoundTrip(t, words, InfoToProto, InfoFromProto)
}

func TestAModelWithoutADialectIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := EndpointFromProto(EndpointToProto(Endpoint{Name: "m"})); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("EndpointFromProto = %v, want ErrInvalid", err)
	}
	if _, err := InfoFromProto(InfoToProto(Info{Name: "m"})); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("InfoFromProto = %v, want ErrInvalid", err)
	}
	if _, err := EndpointFromProto(EndpointToProto(Endpoint{Dialect: DialectGemini, Parameters: []byte("{")})); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("parameters that are not JSON: %v, want ErrInvalid", err)
	}
}
