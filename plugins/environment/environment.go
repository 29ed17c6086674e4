// Package environment is the contract of environment plugins: programs that
// make and remove sandboxes, build images, and offer surfaces.
//
// It holds types, sentinels and the gRPC shims of the contract. It must not
// know any engine, and nothing in it runs a command in a sandbox: that is
// package sandbox, the same for every environment.
package environment

import (
	"context"
	"encoding/json"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/fault"
)

// Environment makes isolated sandboxes for attempts. One value serves many
// attempts at once: every method is safe for concurrent use.
//
// An Environment keeps no configuration: each Spec carries the JSON of the
// experiment's block. The core creates and removes the control folders; the
// plugin removes what Create made.
type Environment interface {
	// Check reports why Create would refuse spec, and which of its limits Create
	// could not fully enforce. It has no side effects and starts nothing: plan,
	// doctor and validate call it. An error means that Check itself failed.
	Check(ctx context.Context, spec Spec) (Report, error)
	// Create makes a sandbox whose PID 1 is /berth/sandboxd from the control
	// folder of spec, and returns when sandboxd has been started. If ctx ends
	// first, Create stops early and removes what it made. It fails with
	// ErrNoCapacity (retry later), or with ErrBadImage, ErrBuildFailed or
	// ErrRefused (never retry).
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Destroy removes a sandbox and everything in it. It is idempotent: an
	// unknown id is not an error. It kills processes at once and does not wait
	// for a graceful stop.
	Destroy(ctx context.Context, id string) (Remains, error)
	// List returns the ids of existing sandboxes whose Labels.Owner is owner. An
	// empty owner means all sandboxes that this plugin made for this user of the
	// machine. gc calls it, so it must also find the sandboxes that a killed
	// process of the plugin left.
	List(ctx context.Context, owner string) ([]string, error)
}

// Preparer is optional (capability "images"): the environment has images to
// pull or build before Create.
type Preparer interface {
	// Prepare pulls or builds image once per content digest, even if many callers
	// ask at the same time. log receives lines as they come and may be nil.
	// Create with the returned Image does not pull or build.
	Prepare(ctx context.Context, image Image, config json.RawMessage, log func(line string)) (Image, error)
}

// Keeper is optional (capability "image_gc"): the environment keeps images that
// it built or loaded after the sandboxes that used them, for the next run.
type Keeper interface {
	// Kept lists the images that this plugin built or loaded for this user of
	// the machine and that are still there, and no other image.
	Kept(ctx context.Context) ([]KeptImage, error)
	// Drop removes an image that Kept lists, unless it is in use, and reports
	// whether it removed the image. It never removes an image that Kept does not
	// list.
	Drop(ctx context.Context, ref string) (bool, error)
}

// Capabilities of environments, announced in Describe. Those with an interface
// are announced for each type that has its methods; CapabilitySidecars has none
// and is declared in plugins.Info.
const (
	CapabilityImages  = "images"   // Preparer
	CapabilityImageGC = "image_gc" // Keeper
	// CapabilitySidecars says that Create makes Spec.Sidecars and Spec.Volumes:
	// a sandbox may have containers in addition to the main one. Each container
	// has its own network namespace, with what Spec.Network allows and
	// nothing else. sandboxd adds a network device that leads to the other
	// containers: for this, each container of a sandbox with sidecars starts with
	// the capability NET_ADMIN, which sandboxd gives up before anything else runs,
	// and with the device /dev/net/tun. In each, the names, host names and aliases
	// of all containers, also of main, resolve to their addresses. Without this
	// capability, a Spec with sidecars is refused.
	CapabilitySidecars = "sidecars"
	CapabilitySurface  = "surface" // Surface
	// CapabilityNoSandboxes says that the plugin makes no sandboxes: SurfaceOnly.
	CapabilityNoSandboxes = "no_sandboxes"
)

// Labels mark everything that a plugin makes for an attempt, so that gc finds
// it after a crash.
type Labels struct {
	Owner   string `json:"owner"`   // the run: unique on this machine
	Trial   string `json:"trial"`   // trial id
	Attempt int    `json:"attempt"` // 1…
}

// Spec describes the sandbox of one attempt. The zero value of a limit means no
// limit.
type Spec struct {
	Labels   Labels            `json:"labels"`
	Config   json.RawMessage   `json:"config,omitempty"`  // the experiment's block, strict JSON
	Image    Image             `json:"image"`             //
	Workdir  string            `json:"workdir,omitempty"` // absolute; empty: the image's, else /
	Env      map[string]string `json:"env,omitempty"`     // for every command in main
	Users    []string          `json:"users,omitempty"`   // names or ids that commands and services will run as, in addition to root
	Limits   Limits            `json:"limits"`
	Network  Network           `json:"network"`
	Mounts   []Mount           `json:"mounts,omitempty"` // read-only folders of the host (bundles)
	Sidecars []Sidecar         `json:"sidecars,omitempty"`
	Volumes  []Volume          `json:"volumes,omitempty"`  // of the main container
	Control  string            `json:"control"`            // control folder of main, mounted read-only at /berth
	Address  string            `json:"address,omitempty"`  // IPv4 address of main, with sidecars
	Hostname string            `json:"hostname,omitempty"` // of main; empty: the environment's own. With sidecars, all containers know Address by it, too
	Aliases  []string          `json:"aliases,omitempty"`  // further names by which all containers know Address
	Lease    time.Duration     `json:"lease"`              // a sandbox ends itself if the core is silent for this long
	Files    string            `json:"files,omitempty"`    // folder on the host with the task's files for the environment
	Settings json.RawMessage   `json:"settings,omitempty"` // the task's settings for the environment
	Scratch  string            `json:"scratch,omitempty"`  // folder on node-local disk for the plugin, until Destroy
}

// Image says what a sandbox starts from: a reference, a folder to build, or,
// with both empty, the environment's base.
type Image struct {
	Ref     string        `json:"ref,omitempty"`     // of a registry, or an archive: "oci-archive:/path", "docker-archive:/path"
	Build   string        `json:"build,omitempty"`   // folder with a Dockerfile
	File    string        `json:"file,omitempty"`    // name of the Dockerfile in Build; empty: Dockerfile
	Target  string        `json:"target,omitempty"`  // stage of the Dockerfile; empty: the last
	Digest  string        `json:"digest,omitempty"`  // content digest; set by Prepare, or by the core for Build: of the folder
	Timeout time.Duration `json:"timeout,omitempty"` // longest pull or build; 0: the environment's own

	// Args are values of the Dockerfile's ARG instructions.
	Args map[string]string `json:"args,omitempty"`
	// Exclude are files and folders below Build that are left out of the context.
	Exclude []string `json:"exclude,omitempty"`
	// Files are files of the context in addition, by their name below Build. They win
	// over files of that name; the Dockerfile may be one.
	Files map[string][]byte `json:"files,omitempty"`
}

// KeptImage is an image that a plugin made and keeps.
type KeptImage struct {
	Ref     string    `json:"ref"`                // for Drop
	SizeMiB int64     `json:"size_mib,omitempty"` // layers that images share count in each; 0: not known
	Used    time.Time `json:"used,omitzero"`      // last prepared, used or made; zero: not known
	InUse   bool      `json:"in_use,omitempty"`   // by a sandbox, or by a process of the plugin that may make one
}

// Limits are hard limits of one sandbox. Zero means no limit.
type Limits struct {
	CPUMilli   int64    `json:"cpu_milli,omitempty"`   // thousandths of a core
	MemoryMiB  int64    `json:"memory_mib,omitempty"`  //
	StorageMiB int64    `json:"storage_mib,omitempty"` // all that the sandbox writes
	ShmMiB     int64    `json:"shm_mib,omitempty"`     // of /dev/shm
	Pids       int64    `json:"pids,omitempty"`        //
	GPUs       int64    `json:"gpus,omitempty"`        //
	GPUTypes   []string `json:"gpu_types,omitempty"`   // any of these
}

// NetworkMode is what a sandbox reaches in addition to its own loopback and
// sidecars.
type NetworkMode string

// The network modes. The zero value is not valid.
const (
	NetworkNone   NetworkMode = "none"   // nothing
	NetworkAllow  NetworkMode = "allow"  // the listed hosts, through the core's proxy; the plugin treats it as none
	NetworkPublic NetworkMode = "public" // any host
)

// Network is what a sandbox may reach at any time of its life. The core
// narrows it per phase through its own proxy.
type Network struct {
	Mode NetworkMode `json:"mode"`
}

// Mount is a folder of the host that is mounted read-only.
type Mount struct {
	Source string `json:"source"` // absolute, on the host
	Target string `json:"target"` // absolute, in the sandbox
}

// Sidecar is a further container of a task, with its own sandboxd.
type Sidecar struct {
	Name    string            `json:"name"` // its host name in the sandbox's network
	Image   Image             `json:"image"`
	Argv    []string          `json:"argv,omitempty"` // empty: what the image says
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	Limits  Limits            `json:"limits"`
	Volumes []Volume          `json:"volumes,omitempty"`
	Control string            `json:"control"` // control folder of this container
	Address string            `json:"address"` // its IPv4 address, which all containers know by Name, Hostname and Aliases

	Hostname string   `json:"hostname,omitempty"` // that it has itself; empty: the environment's own
	Aliases  []string `json:"aliases,omitempty"`
}

// Volume is a named volume, shared by the containers of one sandbox that list
// it. It is removed with the sandbox.
type Volume struct {
	Name   string `json:"name"`
	Target string `json:"target"` // absolute, in the container
	// ReadOnly says that this container cannot write to it.
	ReadOnly bool `json:"read_only,omitempty"`
}

// Report is the answer of Check.
type Report struct {
	Refusals []Problem `json:"refusals,omitempty"` // Create would fail with ErrRefused
	Degraded []Problem `json:"degraded,omitempty"` // Create would work, giving less than was asked
	About    string    `json:"about,omitempty"`    // what the environment is on this machine, in one line, for people
	// Machine is the state of this machine that the environment depends on, for
	// `berth doctor`. It may be empty.
	Machine []MachineCheck `json:"machine,omitempty"`
}

// MachineCheck is one fact about the machine, and what to do about it.
type MachineCheck struct {
	Name   string `json:"name"`             // "user namespaces"; checks of one name and text are shown once
	Text   string `json:"text"`             // the fact, in one line
	Remedy string `json:"remedy,omitempty"` // what to do; empty: nothing
}

// Problem is one refusal or degradation, as a person reads it.
type Problem struct {
	Summary string `json:"summary"` // what, no full stop
	Detail  string `json:"detail"`  // why, and what to do or which environment could
}

// String is the problem on one line. The detail is a separate sentence, or
// completes the summary.
func (p Problem) String() string {
	if p.Detail == "" {
		return p.Summary
	}
	if r, _ := utf8.DecodeRuneInString(p.Detail); unicode.IsUpper(r) {
		return p.Summary + ". " + p.Detail
	}
	return p.Summary + ": " + p.Detail
}

// Grant says whether a requested limit is enforced.
type Grant string

// The grants. The zero value means that no limit was requested.
const (
	GrantEnforced   Grant = "enforced"
	GrantBestEffort Grant = "best_effort"
	GrantNo         Grant = "no"
)

// Granted says for each resource whether its limit is enforced.
type Granted struct {
	CPU     Grant  `json:"cpu,omitempty"`
	Memory  Grant  `json:"memory,omitempty"`
	Pids    Grant  `json:"pids,omitempty"`
	Disk    Grant  `json:"disk,omitempty"`
	Network Grant  `json:"network,omitempty"`
	GPU     Grant  `json:"gpu,omitempty"`
	How     string `json:"how,omitempty"` // the mechanism, for people: "RLIMIT_NPROC and a tmpfs of 2048 MiB"
}

// Sandbox is the result of Create.
type Sandbox struct {
	ID       string           `json:"id"`               // opaque, unique on this machine, names the plugin's object for Destroy
	Stream   string           `json:"stream,omitempty"` // address of a byte stream to sandboxd (yamux); empty: sandboxd connects to the control folder
	PID      int              `json:"pid,omitempty"`    // of sandboxd in the core's pid namespace; 0: not known
	Granted  Granted          `json:"granted"`
	Image    ImageFacts       `json:"image"`
	Sidecars []SidecarSandbox `json:"sidecars,omitempty"`
	Findings []string         `json:"findings,omitempty"` // protections that did not apply
}

// ImageFacts is what the image of a container declares about itself. The core
// runs Entrypoint and Cmd as a service.
type ImageFacts struct {
	Ref        string            `json:"ref,omitempty"`
	Digest     string            `json:"digest,omitempty"`
	Base       string            `json:"base,omitempty"` // "host" where the host's own programs are the base
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	User       string            `json:"user,omitempty"`
	Workdir    string            `json:"workdir,omitempty"`
	Volumes    []string          `json:"volumes,omitempty"` // of the image's VOLUME; mode image lacks the files there
}

// SidecarSandbox is one running sidecar.
type SidecarSandbox struct {
	Name   string     `json:"name"`
	Stream string     `json:"stream,omitempty"`
	PID    int        `json:"pid,omitempty"`
	Image  ImageFacts `json:"image"`
}

// Remains is what Destroy measured of a sandbox. Zero means unknown.
type Remains struct {
	OOMKills      int64         `json:"oom_kills,omitempty"`
	PeakMemoryMiB int64         `json:"peak_memory_mib,omitempty"`
	CPU           time.Duration `json:"cpu,omitempty"`       // user and system
	Throttled     time.Duration `json:"throttled,omitempty"` // time in which it waited for a core
	Findings      []string      `json:"findings,omitempty"`
}

// The errors of environments. The core sees them as the same errors: errors.Is
// works across the wire, and the plugin's own text is kept.
var (
	ErrNoCapacity  = fault.ErrNoCapacity  // retry later
	ErrBadImage    = fault.ErrBadImage    // does not exist or cannot be read; never retry
	ErrBuildFailed = fault.ErrBuildFailed // the Dockerfile is at fault; never retry
	ErrRefused     = fault.ErrRefused     // Check says why; never retry
	ErrUnsupported = fault.ErrUnsupported // a capability that was not announced
	ErrNoSandbox   = fault.ErrNoSandbox   // the id is unknown or gone
)
