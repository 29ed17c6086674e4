// Package engine is what environments over container engines have in common:
// which image a sandbox starts from and how it comes to be there once, what of
// a Spec an engine can keep, and how a container has to be made so that
// sandboxd is its PID 1 and nothing of it is left.
//
// It knows no engine's API and imports no engine's library: a plugin implements
// [Engine] in terms of its own, in about two hundred lines.
package engine

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/plugins/environment"
)

// What an Engine fails with, beside errors of its own.
var (
	// ErrAbsent says that the engine has no such container or image.
	ErrAbsent = errors.New("not there")
	// ErrNoImage says that a registry has no such image, or does not show it.
	ErrNoImage = errors.New("no such image")
	// ErrInUse says that something uses what was to be removed.
	ErrInUse = errors.New("in use")
	// ErrBusy says that a registry or the engine wants less work.
	ErrBusy = errors.New("too many requests")
	// ErrBuild says that a build failed by what its Dockerfile says.
	ErrBuild = errors.New("build failed")
)

// Engine is what differs between two engines: their API. One value serves many
// attempts at once: every method is safe for concurrent use, ends early with
// ctx, and fails with ErrAbsent where the object is not there.
type Engine interface {
	// Facts says what the engine is and what it can keep. Each call asks it.
	Facts(ctx context.Context) (Facts, error)

	// Inspect returns what an image says about itself; ref is a name or an ID.
	Inspect(ctx context.Context, ref string) (Image, error)
	// Pull fetches an image from its registry. Fails with ErrNoImage, ErrBusy.
	Pull(ctx context.Context, ref string, log func(string)) error
	// CannotBuild says why the engine cannot build such a Dockerfile; empty: it can.
	CannotBuild(w dockerfile.Wants) string
	// Build makes an image and names it. Fails with ErrBuild.
	Build(ctx context.Context, b Build, log func(string)) error
	// Load reads an archive and returns the names or IDs of its images.
	Load(ctx context.Context, r io.Reader) ([]string, error)
	// LoadsOCI says whether Load reads OCI archives, beside Docker's.
	LoadsOCI() bool
	// FindsLocal says whether a name without a registry may be that of an image
	// under localhost/.
	FindsLocal() bool
	// Tag gives an image another name.
	Tag(ctx context.Context, ref, name string) error
	// RemoveImage removes a name, and the image with its last one. Fails with
	// ErrInUse where a container has the image.
	RemoveImage(ctx context.Context, ref string) error
	// Images lists images by labels, of which all must fit.
	Images(ctx context.Context, labels map[string]string) ([]Listed, error)

	// Create makes a container that does not run yet.
	Create(ctx context.Context, c Container) error
	Start(ctx context.Context, name string) error
	// State says how a container is.
	State(ctx context.Context, name string) (State, error)
	// Kill ends a container's processes by SIGKILL and waits until they are gone.
	Kill(ctx context.Context, name string) error
	// Remove kills and removes a container with its anonymous volumes.
	Remove(ctx context.Context, name string) error
	// Containers lists containers, running or not, by labels.
	Containers(ctx context.Context, labels map[string]string) ([]Listed, error)
	// CreateVolume makes a named volume.
	CreateVolume(ctx context.Context, name string, labels map[string]string) error
	// RemoveVolume removes a volume that no container uses.
	RemoveVolume(ctx context.Context, name string) error
	// Volumes lists volumes by labels.
	Volumes(ctx context.Context, labels map[string]string) ([]Listed, error)
	// Commit makes an image of a container, with its labels.
	Commit(ctx context.Context, name, image string) error
	// Changed lists the paths that differ from the image.
	Changed(ctx context.Context, name string) ([]string, error)
}

// Facts is what an engine is and what it can keep.
type Facts struct {
	ID       string // of the engine's store, unique on this machine
	Version  string // for people
	About    string // versions and where things are kept, in one line
	CPU      bool   // limits processors
	Memory   bool   // limits memory
	Pids     bool   // limits processes by control group
	Disk     bool   // limits what a container writes
	SELinux  bool   // confines containers by SELinux labels
	OneID    bool   // containers have a single user id
	GPUs     []string
	Degraded []environment.Problem // what is odd with this installation
	How      string                // by what means limits are kept, for people
	NoPublic string                // why there is no public network; empty: there is one
}

// Image is an image that the engine has.
type Image struct {
	ID    string // sha256:…, of its configuration
	Named string // name@digest, where it came from a registry
	environment.ImageFacts
	Labels map[string]string
}

// Build is one image to build.
type Build struct {
	Context io.Reader // tar
	File    string    // of the Dockerfile in Context
	Name    string    // that the image gets
	Labels  map[string]string
	Wants   dockerfile.Wants // of File
}

// OwnCap is the one capability beyond the engine's default: become.OwnCap, which
// sandboxd keeps for itself.
const OwnCap = "WAKE_ALARM"

// Container is how a container is to be made. What is not in it is off: no
// engine's init, no health check, no restart, no log, no terminal, an id that
// maps to root whatever the image says, and the engine's default capabilities
// with OwnCap.
type Container struct {
	Name       string
	Image      string // an ID or a name
	Hostname   string
	Entrypoint []string
	Workdir    string
	Labels     map[string]string
	Mounts     []environment.Mount  // all read-only
	Volumes    []environment.Volume // by the engine's names, writable
	Public     bool                 // the engine's default network; else none
	Join       string               // name of a container that runs, whose network it is in; Public and Hosts do not count then
	Hosts      []string             // names of 127.0.0.1 beside localhost
	Limits     environment.Limits   // those that the engine keeps
	Nproc      int64                // RLIMIT_NPROC; 0: the engine's own
	NoSELinux  bool                 // the container may connect to sockets of the host
}

// State is how a container is.
type State struct {
	ID       string // the engine's
	Running  bool
	PID      int // of PID 1 in our pid namespace; 0: not known
	ExitCode int
	OOM      bool
	Error    string
}

// Listed is one thing of a list.
type Listed struct {
	ID      string
	Name    string
	Labels  map[string]string
	Image   string    // of a container: the ID of what it was made of
	Size    int64     // of an image, in bytes; layers that images share count in each
	Created time.Time // of an image
}
