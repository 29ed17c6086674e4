// Package sandbox lets a plugin use a sandbox: commands, files and terminals of
// one session, through the address that the core passes in its messages.
//
//	box, err := sandbox.Dial(setup.Shell)
//	r, err := box.Exec(ctx, sandbox.Command{Argv: []string{"make", "test"}, Stdout: &out})
//
// It must not know which environment made the sandbox, and must not talk to the
// core other than through that address. Data from a sandbox may be hostile.
// Functions that copy it to the host (DownloadFolder, ReadFile) check it;
// callers must check raw streams (Download, Terminal) themselves.
package sandbox

import (
	"context"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
)

// The errors of calls, in addition to those of their context. Test with
// errors.Is; the text gives the details.
var (
	// ErrNoProgram: argv[0] is not in the sandbox.
	ErrNoProgram = fault.ErrNoProgram
	// ErrNotFound: no such path, user, command or terminal.
	ErrNotFound = fault.ErrNotFound
	// ErrDenied: the kernel of the sandbox refused (permission, not executable,
	// read-only).
	ErrDenied = fault.ErrDenied
	// ErrNoRoom: the sandbox has no process, memory, descriptor or disk space
	// left. A later call may succeed.
	ErrNoRoom = fault.ErrNoRoom
	// ErrTooLarge: more bytes or entries than the call allowed.
	ErrTooLarge = fault.ErrTooLarge
	// ErrUnsafe: a link, device or pipe where a file or folder must be, or an
	// archive that holds such a thing or leads out of its folder.
	ErrUnsafe = fault.ErrUnsafe
	// ErrExists: the id of a command or terminal is taken, or a folder is where
	// a file should go.
	ErrExists = fault.ErrExists
	// ErrFrozen: the core has frozen the sandbox; commands cannot start.
	ErrFrozen = fault.ErrFrozen
	// ErrRevoked: the session is not open: between turns, or after its end.
	ErrRevoked = fault.ErrRevoked
	// ErrInvalid: the request is invalid.
	ErrInvalid = fault.ErrInvalid
	// ErrGone: the connection broke during the call; the sandbox may have ended.
	ErrGone = fault.ErrGone
)

// Shell is the interface of Client, for tests of plugins without a sandbox.
type Shell interface {
	Exec(ctx context.Context, c Command) (Result, error)
	Join(ctx context.Context, j Joining) (Result, error)
	Signal(ctx context.Context, id string, signal syscall.Signal) error
	Kill(ctx context.Context, id string) error
	Terminal(ctx context.Context, spec TerminalSpec) (*Terminal, error)
	JoinTerminal(ctx context.Context, id string, offset int64) (*Terminal, error)
	Upload(ctx context.Context, dir string, tar io.Reader, o UploadOptions) error
	UploadFolder(ctx context.Context, host, dir string, o UploadOptions) error
	Download(ctx context.Context, path string, w io.Writer, l archive.Limits) error
	DownloadFolder(ctx context.Context, path, host string, l archive.Limits) (archive.Report, error)
	WriteFile(ctx context.Context, path string, data []byte, o FileOptions) error
	ReadFile(ctx context.Context, path string, limit int64) ([]byte, error)
	Read(ctx context.Context, path string, limit int64) ([]byte, error)
	Stat(ctx context.Context, path string) (FileInfo, error)
	Lstat(ctx context.Context, path string) (FileInfo, error)
}

var _ Shell = (*Client)(nil)

// Command is what to run.
type Command struct {
	// Argv is the program and its arguments. A program without a slash is
	// searched in the PATH of the command.
	Argv []string
	// Env is K=V entries on top of the session's, which hold at least PATH and
	// HOME.
	Env []string
	// Dir is the working folder; empty: the session's.
	Dir string
	// User is a name or number, "bob", "1000", "bob:staff", "1000:1000", looked
	// up in the sandbox's own /etc/passwd; empty: the session's. A number that
	// is not there has group 0, as in Docker.
	User string
	// Timeout kills the command and its descendants when it expires. 0: none.
	Timeout time.Duration
	// Stdin is copied until its end; nil is /dev/null. Exec does not wait for a
	// Read that is still blocked when the command ends.
	Stdin io.Reader
	// Stdout and Stderr get the output as it comes, from one goroutine; nil is
	// /dev/null, unless the command is kept. An error of a Write ends the command like a cancel.
	Stdout, Stderr io.Writer
	// ID, if set, keeps the command: it continues after a broken connection or
	// a cancel of this call, until it is joined (Join) or killed (Kill). The
	// last 256 KiB of each output are kept for Join. A session keeps the 32
	// newest commands. The ID must be unique in the session.
	ID string
	// Sweep kills, once the command has ended and before Exec returns, every
	// process that did not exist when the command began, does not descend from
	// one that did, and is not a service of the task. This finds everything
	// that the command left, however it was detached. Only in a verifier's
	// session (otherwise ErrDenied), and without an ID.
	Sweep bool
	// Read are files that the command will write. They are read after the
	// command has ended and the sweep is done, as by Client.Read but without
	// another round trip. The sum of their limits must be at most 16 MiB. Like
	// Sweep, only in a verifier's session and without an ID.
	Read []Reading
	// Unwritten fails with ErrExists and does not start the command if a file
	// of Read already exists.
	Unwritten bool
}

// Reading names one regular file, with no link in its path.
type Reading struct {
	Path  string // absolute, clean
	Limit int64  // bytes, at least 1
}

// Answer is the result of a Reading: the file, or ErrNotFound, ErrUnsafe,
// ErrTooLarge or another reason why it could not be read.
type Answer struct {
	Data []byte
	Err  error
}

// Result is how a command ended. A command that ran and failed is a Result, not
// an error.
type Result struct {
	ExitCode int            // 0..255, or -1 when a signal ended it
	Signal   syscall.Signal // that signal, or 0
	TimedOut bool           // Command.Timeout ended it
	Killed   bool           // a cancel, or the core, ended it
	// Swept are the command lines of the processes that Command.Sweep killed.
	// This text comes from the sandbox and cannot be trusted.
	Swept []string
	// Read is Command.Read, in its order.
	Read []Answer
}

// OK is true for a command that ended with exit code 0.
func (r Result) OK() bool { return r.ExitCode == 0 }

// Joining is the input of Join.
type Joining struct {
	ID             string
	Stdout, Stderr io.Writer
	// StdoutOffset and StderrOffset say how many bytes of each output the
	// caller already has. Output continues from there, or from the oldest byte
	// that is left.
	StdoutOffset, StderrOffset int64
	// Joined, if set, is called with the offsets at which the output continues,
	// before any output.
	Joined func(stdoutOffset, stderrOffset int64)
	// Stdin is as in Command, if the command was started with one.
	Stdin io.Reader
}

// TerminalSpec is a command on a new pseudo-terminal. It is kept under its ID
// as long as the session lasts, across turns and broken connections.
type TerminalSpec struct {
	ID   string // not empty; shared with the ids of commands
	Argv []string
	Env  []string // on top of the session's; TERM is xterm-256color unless set
	Dir  string
	User string
	// Rows and Columns of the screen, 1..65535; 0 is 24 and 80.
	Rows, Columns int
}

// UploadOptions are for archives and folders that go into the sandbox.
type UploadOptions struct {
	User   string // owner of all that is made; empty: the session's user
	Limits archive.Limits
	// Skip, in UploadFolder, leaves out a name (relative, with slashes) and
	// what is below it.
	Skip func(name string) bool
}

// FileOptions are for WriteFile.
type FileOptions struct {
	Mode fs.FileMode // permission bits; 0 is 0644
	User string      // owner; empty: the session's user
}

// FileInfo describes one file in the sandbox.
type FileInfo struct {
	Kind   Kind
	Bytes  int64
	Mode   fs.FileMode // permission bits only
	Target string      // of a link
}

// Kind is the type of a file.
type Kind string

// The kinds.
const (
	File   Kind = "file"
	Folder Kind = "folder"
	Link   Kind = "link"
	Other  Kind = "other" // a device, socket or pipe
)
