// Package fault carries the errors of the plugin contracts across gRPC: one
// table of reasons, and the interceptors at both ends that are the only place
// where errors and panics are turned into statuses and back.
//
// Plugin authors do not need it: they return plain errors that wrap the
// sentinels of agent, environment and verifier. It must not know how anything
// is done, and no reason may exist that plugin.proto does not list.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/verifier"
)

// The sentinels that belong to no kind of plugin.
var (
	// ErrInvalid is a message that makes no sense: an enumeration that is not
	// given, JSON that is none.
	ErrInvalid = wire.ErrInvalid
	// ErrUnknownPlugin means that the binary serves no plugin of that name.
	ErrUnknownPlugin = wire.ErrUnknownPlugin
	// ErrPanic is a bug in the plugin that this call met; other calls go on.
	ErrPanic = wire.ErrPanic
	// ErrUnavailable means that the connection, or the process behind it, is
	// gone. No side encodes it: gRPC itself says so.
	ErrUnavailable = errors.New("connection is gone")
)

// MaxMessage is the size of the largest gRPC message, in bytes, both ways.
const MaxMessage = wire.MaxMessage

// domain marks our reasons in google.rpc.ErrorInfo.
const domain = "berth"

// reasons is the whole error vocabulary on the wire. A row added here, and to
// the list in plugin.proto, is all that a new sentinel needs. The first row
// that an error wraps is the one that travels.
var reasons = []struct {
	err    error
	reason string
	code   codes.Code
}{
	{ErrPanic, "PANIC", codes.Internal},
	{ErrInvalid, "INVALID", codes.InvalidArgument},
	{ErrUnknownPlugin, "UNKNOWN_PLUGIN", codes.NotFound},
	{environment.ErrUnsupported, "UNSUPPORTED", codes.Unimplemented},
	{agent.ErrBadConfig, "BAD_CONFIG", codes.InvalidArgument},
	{agent.ErrNoSession, "NO_SESSION", codes.NotFound},
	{agent.ErrModel, "MODEL_UNAVAILABLE", codes.FailedPrecondition},
	{environment.ErrNoCapacity, "NO_CAPACITY", codes.ResourceExhausted},
	{environment.ErrBadImage, "BAD_IMAGE", codes.FailedPrecondition},
	{environment.ErrBuildFailed, "BUILD_FAILED", codes.FailedPrecondition},
	{environment.ErrRefused, "REFUSED", codes.FailedPrecondition},
	{environment.ErrNoSandbox, "NO_SANDBOX", codes.NotFound},
	{verifier.ErrArtifactMissing, "ARTIFACT_MISSING", codes.NotFound},
	{verifier.ErrBadReward, "BAD_REWARD", codes.DataLoss},
}

// maxText is how much of an error's text travels, in bytes: it goes into a
// header, for which gRPC has limits of its own.
const maxText = 4 << 10

// Encode turns an error of a plugin into a status: the sentinel that it wraps
// becomes a reason, and problems of a configuration become BAD_CONFIG. A status
// that the plugin got from somewhere else loses its code, which would say
// something about this call that is not so. A nil error stays nil.
func Encode(err error) error {
	if err == nil {
		return nil
	}
	text := wire.Text(err.Error())
	if len(text) > maxText {
		text = wire.Text(text[:maxText]) + " ..."
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return encode(r.code, r.reason, text)
		}
	}
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		return encode(codes.InvalidArgument, "BAD_CONFIG", text)
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, text)
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, text)
	}
	return status.Error(codes.Unknown, text)
}

func encode(code codes.Code, reason, text string) error {
	s, err := status.New(code, text).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: domain})
	if err != nil { // cannot be: the code is not OK and the detail is a message
		return status.Error(code, text)
	}
	return s.Err()
}

// clockStep is how much earlier than the caller's the other side's clock for the
// same deadline may ring.
const clockStep = 100 * time.Millisecond

// DecodeCall is Decode of an error of a call that was made with ctx. When ctx
// has ended, that is what the error is: gRPC may call a deadline that the other
// side saw first a cancel.
func DecodeCall(ctx context.Context, err error) error {
	switch code := status.Code(err); code {
	case codes.Canceled, codes.DeadlineExceeded:
		if at, ok := ctx.Deadline(); ok && time.Until(at) < clockStep {
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			text, end := status.Convert(err).Message(), ctx.Err()
			if !strings.Contains(text, end.Error()) {
				text = end.Error() + ": " + text
			}
			return &remote{text: text, is: end}
		}
	default:
	}
	return Decode(err)
}

// Decode gives the sentinel back that Encode put away, with the plugin's own
// text. A plugin in another language may send only the code. What is no status
// stays as it is.
func Decode(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range s.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain {
			continue
		}
		for _, r := range reasons {
			if r.reason == info.GetReason() {
				return &remote{text: s.Message(), is: r.err}
			}
		}
	}
	switch s.Code() {
	case codes.Canceled:
		return &remote{text: s.Message(), is: context.Canceled}
	case codes.DeadlineExceeded:
		return &remote{text: s.Message(), is: context.DeadlineExceeded}
	case codes.Unimplemented:
		return &remote{text: s.Message(), is: environment.ErrUnsupported}
	case codes.InvalidArgument:
		return &remote{text: s.Message(), is: ErrInvalid}
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", ErrUnavailable, s.Message())
	case codes.Unknown: // a plain error of a plugin
		return &remote{text: s.Message(), is: err}
	default:
		return &remote{text: fmt.Sprintf("%s: %s", s.Code(), s.Message()), is: err}
	}
}

// remote is an error of the other side: its text, and what it wrapped there.
type remote struct {
	text string
	is   error
}

func (r *remote) Error() string { return r.text }
func (r *remote) Unwrap() error { return r.is }
