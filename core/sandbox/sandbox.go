// Package sandbox is the core's name for its end of a sandbox. How it is done
// is in plugins/sandbox/host, where the conformance kit of environments can use
// it, too; this package says what an attempt does with it.
//
// It must not know which environment made the sandbox, and must not keep what
// belongs to one attempt longer than the Sandbox.
package sandbox

import (
	"context"
	"time"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// The words of package host, for the core.
type (
	// Folder is a control folder, mounted read-only at /berth.
	Folder = host.Folder
	// Sandbox is one connected sandbox, which renews its own lease.
	Sandbox = host.Sandbox
	// Session is one agent or verifier, with the defaults of its commands.
	Session = host.Session
	// Process is one process inside.
	Process = host.Process
	// Processes is what runs inside.
	Processes = host.Processes
	// Key names a process for good.
	Key = host.Key
	// Socket is something that listens.
	Socket = host.Socket
	// Settled says what the end of an agent killed and stopped.
	Settled = host.Settled
	// Service is a program of the task.
	Service = host.Service
	// ServiceState is how a service is.
	ServiceState = host.ServiceState
	// ServiceChange is a service that an agent could have changed.
	ServiceChange = host.ServiceChange
	// Commands are what is asked about changes.
	Commands = host.Commands
	// Moved is what stood where a fresh folder had to be.
	Moved = host.Moved
	// Stats is what the sandbox uses.
	Stats = host.Stats
	// Frozen says how a freeze went.
	Frozen = host.Frozen
	// Port is a loopback port inside that is served out here.
	Port = host.Port
)

// ErrTampered says that PID 1 is not as it was when it began: Untouched and Settle
// fail with it.
var ErrTampered = host.ErrTampered

// Install puts one copy of sandboxd, named by its digest, into dir and returns
// its path, for NewFolder, and the digest.
func Install(dir, sandboxd string) (path, digest string, err error) {
	return host.Install(dir, sandboxd)
}

// NewFolder makes a control folder at path, whose parent must have mode 0700.
// The path must be short: a socket's has at most 100 bytes.
func NewFolder(path, sandboxd string) (*Folder, error) { return host.NewFolder(path, sandboxd) }

// Connect waits until sandboxd has dialed out of the folder. pid is what the
// environment knows sandboxd's to be, or 0; lease is how long the sandbox lives
// without us.
func Connect(ctx context.Context, f *Folder, pid int, lease time.Duration) (*Sandbox, error) {
	return host.Connect(ctx, f, pid, lease)
}

// ConnectOwn is Connect, and a client of the core's own session, as of
// Sandbox.Own.
func ConnectOwn(ctx context.Context, f *Folder, pid int, lease time.Duration, who Session) (*Sandbox, *sandbox.Client, error) {
	return host.ConnectOwn(ctx, f, pid, lease, who)
}
