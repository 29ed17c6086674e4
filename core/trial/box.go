package trial

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
)

// Sandboxes makes the core's ends of sandboxes (package sandbox).
type Sandboxes interface {
	// Control makes a control folder at path, which does not exist.
	Control(path string) (Control, error)
}

// Control is a control folder before and after its sandbox has connected.
type Control interface {
	Path() string
	// Connect waits for the sandbox's first words.
	Connect(ctx context.Context, made environment.Sandbox, lease time.Duration) (Box, error)
	// Close removes the folder; a connected sandbox ends.
	Close() error
}

// Box is a connected sandbox.
type Box interface {
	Files
	// Findings are protections that this place does not give.
	Findings() []string
	// Lost is closed when the sandbox has ended or cannot be reached any more.
	Lost() <-chan struct{}
	Renew(ctx context.Context, lease time.Duration) error
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Processes(ctx context.Context) ([]Process, error)
	// Settle ends an agent: the first processes of its commands, and what runs
	// a file below one of bundles.
	Settle(ctx context.Context, session string, bundles []string) (killed []Process, err error)
	// Quiesce kills all but PID 1.
	Quiesce(ctx context.Context) (killed []Process, err error)
	StartService(ctx context.Context, name string, c Command) error
	RestartServices(ctx context.Context) error
	// ServiceOutput is the end of what a service wrote, and whether it runs.
	ServiceOutput(ctx context.Context, name string) (output string, running bool, err error)
	// Fresh makes folders anew and returns what stood there.
	Fresh(ctx context.Context, paths []string) ([]Moved, error)
	// Session makes a session, at an address that serves nobody yet.
	Session(ctx context.Context, spec SessionSpec) (Session, error)
	PortOpener
}

// PortOpener opens loopback ports inside.
type PortOpener interface {
	Listen(ctx context.Context, port int, serve func(net.Conn)) (opened int, err error)
}

// Files are commands and files in a sandbox, for the core's own use.
type Files interface {
	// Exec runs a command; what it prints goes to out.
	Exec(ctx context.Context, c Command, out io.Writer) (code int, err error)
	// Upload extracts a tar archive below dir, made when missing.
	Upload(ctx context.Context, dir, user string, archive io.Reader) error
	// Download returns a path as a tar archive. ErrNotFound when it is not there.
	Download(ctx context.Context, path string, maxBytes, maxEntries int64) (io.ReadCloser, error)
}

// Command is a command in a sandbox. Empty fields are the session's.
type Command struct {
	Argv []string
	Env  map[string]string
	Dir  string
	User string
	Time time.Duration // 0: none
}

// Process is a process in a sandbox. Text in it is the sandbox's claim.
type Process struct {
	PID       int
	Command   string
	User      int
	Service   bool // of the task, or below one
	Listening []string
}

// Moved is what Fresh found in the way.
type Moved struct {
	Path    string
	Kind    string
	Entries int
}

// SessionSpec says what commands of a session get when they say nothing.
type SessionSpec struct {
	Name    string
	Socket  string // path of the socket on the host
	User    string
	Dir     string
	Env     map[string]string
	Grading bool
}

// Session is one plugin's access to a sandbox.
type Session interface {
	// Address is where a shell is served while the session is open.
	Address() string
	// Open lets connections through.
	Open(ctx context.Context) error
	// Revoke ends every connection and lets no new one through. It kills
	// nothing. Idempotent.
	Revoke(ctx context.Context) error
	// Close revokes for good and removes the socket. Idempotent.
	Close(ctx context.Context) error
}

// What the packages behind the interfaces here fail with.
var (
	// ErrNotFound means that a path in a sandbox is not there.
	ErrNotFound = errors.New("not found in the sandbox")
	// ErrPluginGone means that a plugin's process ended during a call.
	ErrPluginGone = errors.New("plugin exited")
	// ErrPreempted is the cause with which a caller cancels an attempt that the
	// machine's owner takes away.
	ErrPreempted = errors.New("preempted")
)
