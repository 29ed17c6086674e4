// Package fault carries the errors of the contracts across gRPC. It defines
// every sentinel, a vocabulary for each side (the answers of plugins and of
// sandboxd), and the interceptors that encode and decode errors.
//
// Plugin authors do not need it. They return plain errors that wrap the
// sentinels of agent, environment, verifier and sandbox, which are the ones in
// this package. It contains no other logic, and it must not have a reason that
// plugin.proto or sandbox.proto does not list.
package fault

import (
	"errors"

	"google.golang.org/grpc/codes"
)

// MaxMessage is the size of a plugin's largest message in either direction, in
// bytes.
const MaxMessage = 32 << 20

// The sentinels that belong to no single contract.
var (
	// ErrInvalid means that a message is invalid: for example, an enumeration
	// is not set, or a field is not valid JSON.
	ErrInvalid = errors.New("invalid request")
	// ErrUnknownPlugin means that the binary serves no plugin with that name.
	ErrUnknownPlugin = errors.New("no such plugin in this binary")
	// ErrPanic means that the call hit a bug in the plugin. Other calls
	// continue.
	ErrPanic = errors.New("bug in the plugin")
	// ErrUnavailable means that the connection, or the process behind it, is
	// gone. Plugins never send it; gRPC itself reports it.
	ErrUnavailable = errors.New("connection is gone")
)

// The sentinels of plugins. Packages agent, environment and verifier document
// them.
var (
	ErrUnsupported     = errors.New("not supported")
	ErrBadConfig       = errors.New("configuration refused")
	ErrNoSession       = errors.New("no such session")
	ErrModel           = errors.New("model unavailable")
	ErrNoCapacity      = errors.New("no capacity")
	ErrBadImage        = errors.New("bad image")
	ErrBuildFailed     = errors.New("image build failed")
	ErrRefused         = errors.New("refused")
	ErrNoSandbox       = errors.New("no such sandbox")
	ErrArtifactMissing = errors.New("artifact missing")
	ErrBadReward       = errors.New("bad reward")
	ErrBadReply        = errors.New("the model's reply does not match the schema")
)

// The sentinels of sandboxes. Package sandbox documents them.
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
	ErrTimeout   = errors.New("processes did not end in time")
	ErrTampered  = errors.New("PID 1 of the sandbox was tampered with")
	ErrGone      = errors.New("connection to the sandbox is gone")
)

// Plugin is the vocabulary of plugin.proto. A new sentinel needs only a row
// here and in the list in that file.
var Plugin = &Vocabulary{gone: ErrUnavailable, reasons: []reason{
	{ErrPanic, "PANIC", codes.Internal},
	{ErrInvalid, "INVALID", codes.InvalidArgument},
	{ErrUnknownPlugin, "UNKNOWN_PLUGIN", codes.NotFound},
	{ErrUnsupported, "UNSUPPORTED", codes.Unimplemented},
	{ErrBadConfig, "BAD_CONFIG", codes.InvalidArgument},
	{ErrNoSession, "NO_SESSION", codes.NotFound},
	{ErrModel, "MODEL_UNAVAILABLE", codes.FailedPrecondition},
	{ErrNoCapacity, "NO_CAPACITY", codes.ResourceExhausted},
	{ErrBadImage, "BAD_IMAGE", codes.FailedPrecondition},
	{ErrBuildFailed, "BUILD_FAILED", codes.FailedPrecondition},
	{ErrRefused, "REFUSED", codes.FailedPrecondition},
	{ErrNoSandbox, "NO_SANDBOX", codes.NotFound},
	{ErrArtifactMissing, "ARTIFACT_MISSING", codes.NotFound},
	{ErrBadReward, "BAD_REWARD", codes.DataLoss},
	{ErrBadReply, "BAD_REPLY", codes.DataLoss},
}}

// Sandbox is the vocabulary of sandbox.proto.
var Sandbox = &Vocabulary{gone: ErrGone, reasons: []reason{
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
	{ErrGone, "GONE", codes.Unavailable},
}}

// reason is one sentinel, its name in messages, and its gRPC code.
type reason struct {
	err  error
	name string
	code codes.Code
}
