// Package fault is the error vocabulary of a sandbox: sentinels, and the table
// that carries them across gRPC. Both ends import it; plugin authors meet the
// sentinels as those of package sandbox.
//
// It must not know how anything is done: an error is named where it arises.
package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The sentinels. Package sandbox documents them.
var (
	ErrNoProgram = errors.New("no such program")
	ErrNotFound  = errors.New("not found")
	ErrDenied    = errors.New("permission denied")
	ErrNoRoom    = errors.New("no room in the sandbox")
	ErrTooLarge  = errors.New("larger than allowed")
	ErrUnsafe    = errors.New("not a plain file or folder")
	ErrExists    = errors.New("exists already")
	ErrFrozen    = errors.New("sandbox is frozen")
	ErrRevoked   = errors.New("access is revoked")
	ErrInvalid   = errors.New("invalid request")
	ErrTimeout   = errors.New("processes did not end in time")
	ErrTampered  = errors.New("PID 1 of the sandbox was tampered with")
	ErrGone      = errors.New("connection to the sandbox is gone")
)

// domain marks our reasons in google.rpc.ErrorInfo.
const domain = "berth"

// reasons is the whole error vocabulary on the wire; sandbox.proto lists it for
// authors in other languages. A row added here is all that a new sentinel needs.
var reasons = []struct {
	err    error
	reason string
	code   codes.Code
}{
	{ErrNoProgram, "NO_PROGRAM", codes.NotFound},
	{ErrNotFound, "NOT_FOUND", codes.NotFound},
	{ErrDenied, "DENIED", codes.PermissionDenied},
	{ErrNoRoom, "NO_ROOM", codes.ResourceExhausted},
	{ErrTooLarge, "TOO_LARGE", codes.OutOfRange},
	{ErrUnsafe, "UNSAFE", codes.FailedPrecondition},
	{ErrExists, "EXISTS", codes.AlreadyExists},
	{ErrFrozen, "FROZEN", codes.FailedPrecondition},
	{ErrRevoked, "REVOKED", codes.PermissionDenied},
	{ErrInvalid, "INVALID", codes.InvalidArgument},
	{ErrTimeout, "TIMEOUT", codes.DeadlineExceeded},
	{ErrTampered, "TAMPERED", codes.DataLoss},
}

// Encode turns an error of a server into a status: the sentinel that it wraps
// becomes a reason. A nil error, and one that is a status already, stay. It is
// for the boundary only.
func Encode(err error) error {
	if err == nil {
		return nil
	}
	for _, r := range reasons {
		if !errors.Is(err, r.err) {
			continue
		}
		s, detailed := status.New(r.code, err.Error()).WithDetails(&errdetails.ErrorInfo{Reason: r.reason, Domain: domain})
		if detailed != nil {
			return status.Error(r.code, err.Error())
		}
		return s.Err()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// Decode gives the sentinel back that Encode put away, with the server's text.
// A status that means that the connection broke becomes ErrGone; a context's
// end becomes the context's error. What is no status stays.
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
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", ErrGone, s.Message())
	default:
		return &remote{text: fmt.Sprintf("%s: %s", s.Code(), s.Message()), is: err}
	}
}

// Told is an error as a reason, if it has one, and words, for a message that
// holds several. Both are empty for no error.
func Told(err error) (reason, text string) {
	if err == nil {
		return "", ""
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.reason, err.Error()
		}
	}
	return "", err.Error()
}

// Heard is the error that Told took apart.
func Heard(reason, text string) error {
	if text == "" {
		return nil
	}
	for _, r := range reasons {
		if r.reason == reason {
			return &remote{text: text, is: r.err}
		}
	}
	return errors.New(text)
}

// remote is an error of the other side: its text, and what it wrapped there.
type remote struct {
	text string
	is   error
}

func (r *remote) Error() string { return r.text }
func (r *remote) Unwrap() error { return r.is }

// Errno gives an error of the kernel its sentinel, so that what failed inside
// can be told apart outside. An error that has one already, or that has none to
// get, stays as it is.
func Errno(err error) error {
	var no syscall.Errno
	if err == nil || !errors.As(err, &no) {
		return err
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return err
		}
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
