package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-eval/berth/plugins/fault"
)

func TestSentinelsOfASandboxSurviveTheWire(t *testing.T) {
	t.Parallel()
	for _, want := range []error{
		fault.ErrNoProgram, fault.ErrNotFound, fault.ErrDenied, fault.ErrNoRoom, fault.ErrTooLarge, fault.ErrUnsafe,
		fault.ErrExists, fault.ErrFrozen, fault.ErrRevoked, fault.ErrInvalid, fault.ErrTimeout, fault.ErrTampered, fault.ErrGone,
		context.Canceled, context.DeadlineExceeded,
	} {
		text := fmt.Sprintf("start %q: %v", "x", want)
		got := fault.Sandbox.Decode(overWire(fault.Sandbox.Encode(fmt.Errorf("start %q: %w", "x", want))))
		if !errors.Is(got, want) || got.Error() != text {
			t.Errorf("got %v (is %v: %v), want %q", got, want, errors.Is(got, want), text)
		}
	}
}

func TestSentinelsOfASandboxSurviveAMessage(t *testing.T) {
	t.Parallel()
	for _, want := range []error{fault.ErrNotFound, fault.ErrUnsafe, fault.ErrTooLarge} {
		err := fmt.Errorf("read: %w", want)
		if got := fault.Sandbox.Join(fault.Sandbox.Parts(err)); !errors.Is(got, want) || got.Error() != err.Error() {
			t.Errorf("got %v, want %v", got, err)
		}
	}
	if got := fault.Sandbox.Join(fault.Sandbox.Parts(errors.New("disk on fire"))); got == nil || got.Error() != "disk on fire" {
		t.Errorf("got %v, want the text", got)
	}
	if fault.Sandbox.Join(fault.Sandbox.Parts(nil)) != nil {
		t.Error("nil became an error")
	}
}

func TestBrokenConnectionIsGone(t *testing.T) {
	t.Parallel()
	if err := fault.Sandbox.Decode(status.Error(codes.Unavailable, "EOF")); !errors.Is(err, fault.ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}

func TestOtherErrorsOfASandboxKeepTheirText(t *testing.T) {
	t.Parallel()
	err := fault.Sandbox.Decode(overWire(fault.Sandbox.Encode(errors.New("disk on fire"))))
	if err == nil || err.Error() != "disk on fire" {
		t.Errorf("got %v, want the text", err)
	}
	if fault.Sandbox.Encode(nil) != nil || fault.Sandbox.Decode(nil) != nil {
		t.Error("nil became an error")
	}
}

// overWire is what gRPC does to a status.
func overWire(err error) error {
	s, _ := status.FromError(err)
	return status.FromProto(s.Proto()).Err()
}
