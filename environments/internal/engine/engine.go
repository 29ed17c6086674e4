// Package engine is the common part of environments that use a container
// engine. It gets the image of a sandbox ready once, checks which parts of a
// Spec an engine can enforce, creates containers with sandboxd as PID 1, and
// removes them completely.
//
// It knows no engine's API and imports no engine's library: a plugin implements
// [Engine] in its own terms, in about two hundred lines.
package engine

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/plugins/environment"
)

// The errors of an Engine, in addition to its own.
var (
	// ErrAbsent means that the engine has no such container or image.
	ErrAbsent = errors.New("not there")
	// ErrNoImage means that a registry has no such image or does not show it.
	ErrNoImage = errors.New("no such image")
	// ErrInUse means that the object to remove is in use.
	ErrInUse = errors.New("in use")
	// ErrBusy means that a registry or the engine limits the rate of requests.
	ErrBusy = errors.New("too many requests")
	// ErrBuild means that a build failed because of its Dockerfile.
	ErrBuild = errors.New("build failed")
)

// Engine is the API of a container engine. One value serves many attempts at
// once: every method is safe for concurrent use, ends early with ctx, and fails
// with ErrAbsent where the object is not there.
type Engine interface {
	// Facts describes the engine and the limits that it can enforce. Each call
	// asks the engine.
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
	// Share loads an archive where other engines of this user on this machine find
	// it, and names it, unless that was done before. False: there is no such place.
	Share(ctx context.Context, file, name string) (bool, error)
	// LoadsOCI reports whether Load reads OCI archives in addition to Docker's.
	LoadsOCI() bool
	// FindsLocal reports whether a name without a registry may belong to an
	// image under localhost/.
	FindsLocal() bool
	// Tag gives an image another name.
	Tag(ctx context.Context, ref, name string) error
	// RemoveImage removes a name, and the image with its last one. Fails with
	// ErrInUse where a container has the image.
	RemoveImage(ctx context.Context, ref string) error
	// Images lists all images that have names.
	Images(ctx context.Context) ([]Listed, error)

	// Create makes a container that does not run yet.
	Create(ctx context.Context, c Container) error
	Start(ctx context.Context, name string) error
	// State returns the state of a container.
	State(ctx context.Context, name string) (State, error)
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
}

// Facts describes an engine and the limits that it can enforce.
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
	Degraded []environment.Problem // problems of this installation
	How      string                // how limits are enforced, for people
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
	Target  string            // stage of File; empty: the last
	Args    map[string]string // of ARG in File
	Wants   dockerfile.Wants  // of File
	Network string            // of its commands: none, or empty: the engine's own
}

// OwnCap is the one capability beyond the engine's default: become.OwnCap, which
// sandboxd keeps for itself.
const OwnCap = "WAKE_ALARM"

// Container describes a container to create. Everything else is off: no init of
// the engine, no health check, no restart, no log, no terminal. The container
// runs as root whatever the image says, with the engine's default capabilities
// and OwnCap.
type Container struct {
	Name       string
	Image      string // an ID or a name
	Hostname   string
	Entrypoint []string
	Workdir    string
	Labels     map[string]string
	Mounts     []environment.Mount  // all read-only
	Volumes    []environment.Volume // by the engine's names
	Public     bool                 // the engine's default network; else none
	Linked     bool                 // with the capability NET_ADMIN and the device /dev/net/tun, for sandboxd
	Hosts      map[string]string    // addresses by name, beside localhost
	Limits     environment.Limits   // those that the engine keeps
	Nproc      int64                // RLIMIT_NPROC; 0: the engine's own
	NoSELinux  bool                 // the container may connect to sockets of the host
}

// State is the state of a container.
type State struct {
	Running  bool
	PID      int // of PID 1 in our pid namespace; 0: not known
	ExitCode int
	OOM      bool
	Error    string
}

// Listed is one thing of a list.
type Listed struct {
	ID      string // of an image
	Name    string
	Labels  map[string]string
	Image   string    // of a container: the ID of what it was made of
	Size    int64     // of an image, in bytes; layers that images share count in each
	Created time.Time // of an image
}
