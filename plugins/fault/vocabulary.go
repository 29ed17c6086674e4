package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-eval/berth/plugins/config"
)

// Vocabulary lists the sentinels that keep their identity across gRPC in one
// contract. If an error wraps several, the first in the list is sent.
type Vocabulary struct {
	reasons []reason
	gone    error // the error for a broken connection
}

const (
	// domain marks our reasons in google.rpc.ErrorInfo.
	domain = "berth"
	// maxText is how many bytes of an error's text are sent. The text goes into
	// a header, and gRPC limits the size of headers.
	maxText = 4 << 10
	// clockStep is how much earlier the other side's clock may reach the same
	// deadline than the caller's.
	clockStep = 100 * time.Millisecond
)

// Encode turns an error of a server into a status. A sentinel that the error
// wraps becomes a reason, and problems of a configuration become the reason of
// ErrBadConfig. A status that the server got from another service loses its
// code, because the code would be wrong for this call. A nil error stays nil.
func (v *Vocabulary) Encode(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "\uFFFD") + " ..."
	}
	if _, ok := errors.AsType[config.Problems](err); ok {
		err = errors.Join(err, ErrBadConfig)
	}
	if r := v.find(err); r != nil {
		s, _ := status.New(r.code, text).WithDetails(&errdetails.ErrorInfo{Reason: r.name, Domain: domain}) // it fails for OK only
		return s.Err()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, text)
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, text)
	}
	return status.Error(codes.Unknown, text)
}

// find returns the first reason whose sentinel err wraps, or nil.
func (v *Vocabulary) find(err error) *reason {
	for i := range v.reasons {
		if errors.Is(err, v.reasons[i].err) {
			return &v.reasons[i]
		}
	}
	return nil
}

// sentinel returns the error for a reason's name, or nil.
func (v *Vocabulary) sentinel(name string) error {
	for _, r := range v.reasons {
		if r.name == name {
			return r.err
		}
	}
	return nil
}

// DecodeCall is Decode for an error of a call that was made with ctx. If ctx
// has ended, it returns the error of ctx: gRPC may report a deadline as a
// cancellation if the other side reached it first.
func (v *Vocabulary) DecodeCall(ctx context.Context, err error) error {
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
	return v.Decode(err)
}

// Decode restores the sentinel that Encode sent, with the other side's own
// text. A server in another language may send only the code. An error that is
// not a status stays unchanged.
func (v *Vocabulary) Decode(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			if is := v.sentinel(info.GetReason()); is != nil {
				return &remote{text: s.Message(), is: is}
			}
		}
	}
	switch s.Code() {
	case codes.Canceled:
		return &remote{text: s.Message(), is: context.Canceled}
	case codes.DeadlineExceeded:
		return &remote{text: s.Message(), is: context.DeadlineExceeded}
	case codes.Unimplemented:
		return &remote{text: s.Message(), is: ErrUnsupported}
	case codes.InvalidArgument:
		return &remote{text: s.Message(), is: ErrInvalid}
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", v.gone, s.Message())
	case codes.Unknown: // a plain error
		return &remote{text: s.Message(), is: err}
	default:
		return &remote{text: fmt.Sprintf("%s: %s", s.Code(), s.Message()), is: err}
	}
}

// Parts returns the name of an error's reason, if it has one, and its text, for
// a message that holds several errors. Both are empty for a nil error.
func (v *Vocabulary) Parts(err error) (name, text string) {
	if err == nil {
		return "", ""
	}
	if r := v.find(err); r != nil {
		return r.name, err.Error()
	}
	return "", err.Error()
}

// Join returns the error that Parts split.
func (v *Vocabulary) Join(name, text string) error {
	if text == "" {
		return nil
	}
	if is := v.sentinel(name); is != nil {
		return &remote{text: text, is: is}
	}
	return errors.New(text)
}

// remote is an error of the other side: its text and the sentinel that it
// wrapped there.
type remote struct {
	text string
	is   error
}

func (r *remote) Error() string { return r.text }
func (r *remote) Unwrap() error { return r.is }

// Errno wraps an error of the kernel in its sentinel, so that callers outside
// the sandbox can tell errors apart. An error that already has a sentinel, or
// for which there is none, stays unchanged.
func Errno(err error) error {
	var no syscall.Errno
	if err == nil || !errors.As(err, &no) || Sandbox.find(err) != nil {
		return err
	}
	sentinel := error(nil)
	switch no {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.ESRCH:
		sentinel = ErrNotFound
	case syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOEXEC:
		sentinel = ErrDenied
	case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EDQUOT:
		sentinel = ErrNoRoom
	case syscall.ELOOP, syscall.EXDEV, syscall.ENXIO, syscall.ENODEV:
		sentinel = ErrUnsafe
	case syscall.EEXIST, syscall.EISDIR, syscall.ENOTEMPTY, syscall.ETXTBSY:
		sentinel = ErrExists
	case syscall.ENAMETOOLONG, syscall.EINVAL, syscall.E2BIG:
		sentinel = ErrInvalid
	default:
		return err
	}
	return &remote{text: err.Error(), is: errors.Join(sentinel, err)}
}
