package task

import (
	"encoding/json"
	"slices"
)

// Environment describes the sandbox that a task asks for. The environment
// plugin answers what it grants.
type Environment struct {
	// Image is a reference to an existing image. If it is empty, Build or
	// Compose is used; if all three are empty, the base of the environment
	// plugin.
	Image string `json:"image,omitempty"`
	// Build builds the image. If Image is set, Image wins.
	Build *Build `json:"build,omitempty"`
	// Compose is the path of a compose file within the task's folder, whose service "main" is
	// the agent's sandbox; empty means none.
	Compose string `json:"compose,omitempty"`
	// Upload says that the files of Build's context are placed in the working
	// directory once the sandbox runs (a ready image with loose files).
	Upload bool `json:"upload,omitempty"`
	// StartTime bounds build or pull and start together; 0 means no bound.
	// StartTimeKey names the setting of the task for it, for messages.
	StartTime    Duration `json:"start_time,omitempty"`
	StartTimeKey string   `json:"start_time_key,omitempty"`
	// OS is "linux" or "windows".
	OS      string `json:"os"`
	Workdir string `json:"workdir,omitempty"`
	Env     Env    `json:"env,omitempty"`
	// Users are all users, by name or number, that the task's commands run as,
	// sorted and without duplicates. The image's own user is not listed.
	Users   []string `json:"users,omitempty"`
	Limits  Limits   `json:"limits"`
	Network Network  `json:"network"`
	// Sidecars are additional containers on the sandbox's network.
	Sidecars []Sidecar `json:"sidecars,omitempty"`
	// Entrypoint and Command run in the main container as a service next to the
	// agent. Empty means the image's entrypoint with a command that does
	// nothing, or nothing if the image has no entrypoint.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Command    []string `json:"command,omitempty"`
	// User is who they run as; empty means the image's.
	User string `json:"user,omitempty"`
	// DependsOn is as Sidecar.DependsOn, for the main container's own programs.
	DependsOn map[string]string `json:"depends_on,omitempty"`
	Volumes   []Volume          `json:"volumes,omitempty"`
	// Hostname and Aliases are as those of Sidecar, for the main container.
	Hostname string   `json:"hostname,omitempty"`
	Aliases  []string `json:"aliases,omitempty"`
	// Settings is a JSON object for the environment plugin (levels, pages,
	// URL), or empty.
	Settings json.RawMessage `json:"settings,omitempty"`
	// Files are resources, by Name, that the environment plugin itself reads.
	Files []string `json:"files,omitempty"`
}

// Build is a build context with a Dockerfile, both within the task's folder.
type Build struct {
	// Context is a folder, File the Dockerfile in it, both slash-separated:
	// Context relative to the task's folder, File to Context. File may be
	// empty: a folder of files without a Dockerfile.
	Context string `json:"context"`
	File    string `json:"file,omitempty"`
	// Target is the stage of the Dockerfile to build; empty means the last.
	Target string `json:"target,omitempty"`
	// Args are values of the Dockerfile's ARG instructions. They are not a place
	// for secrets: the image keeps them.
	Args map[string]string `json:"args,omitempty"`
	// Exclude are files and folders of Context that the build does not see.
	Exclude []string `json:"exclude,omitempty"`
	// Files are files of the context in addition, by their name below Context. They
	// win over files of that name; File may be one.
	Files map[string][]byte `json:"files,omitempty"`
	// Digest is "sha256:" and 64 hex digits over all that the build sees, so that
	// equal digests may share an image.
	Digest string `json:"digest"`
}

// Limits are the resources that the task asks for. Zero means that it does not
// ask.
type Limits struct {
	CPUMilli   int64    `json:"cpu_milli,omitempty"` // thousandths of a core
	MemoryMiB  int64    `json:"memory_mib,omitempty"`
	StorageMiB int64    `json:"storage_mib,omitempty"` // all that the sandbox writes
	ShmMiB     int64    `json:"shm_mib,omitempty"`
	Pids       int64    `json:"pids,omitempty"`
	GPUs       int64    `json:"gpus,omitempty"`
	GPUTypes   []string `json:"gpu_types,omitempty"`
	// TPU is a type and a topology such as "2x2", or nil.
	TPU *TPU `json:"tpu,omitempty"`
}

// TPU is an accelerator slice.
type TPU struct {
	Type     string `json:"type"`
	Topology string `json:"topology"`
}

// Network is what a phase may reach.
type Network struct {
	Mode NetworkMode `json:"mode"`
	// Allow are the hosts of NetworkAllow: host names in lower case, "*.name",
	// addresses, and networks in CIDR form. Empty reaches nothing.
	Allow []string `json:"allow,omitempty"`
}

// NetworkMode is one of the three below; empty is not valid.
type NetworkMode string

// The network modes.
const (
	NetworkNone   NetworkMode = "none"
	NetworkAllow  NetworkMode = "allow"
	NetworkPublic NetworkMode = "public"
)

// Sidecar is an additional container of the task. Exactly one of Image and
// Build is set.
type Sidecar struct {
	Name        string       `json:"name"`
	Image       string       `json:"image,omitempty"`
	Build       *Build       `json:"build,omitempty"`
	Entrypoint  []string     `json:"entrypoint,omitempty"`
	Command     []string     `json:"command,omitempty"`
	Env         Env          `json:"env,omitempty"`
	Workdir     string       `json:"workdir,omitempty"`
	User        string       `json:"user,omitempty"`
	Limits      Limits       `json:"limits"`
	Healthcheck *Healthcheck `json:"healthcheck,omitempty"`
	// DependsOn maps the name of another container to the state that it must
	// have reached first: "started", "healthy" or "completed".
	DependsOn map[string]string `json:"depends_on,omitempty"`
	// Expose are the TCP ports that the sidecar declares to listen on. Others can
	// be reached, too.
	Expose  []int    `json:"expose,omitempty"`
	Volumes []Volume `json:"volumes,omitempty"`
	// Hostname is the host name that the container has; empty means the
	// environment's own. The other containers reach it by this name, by Name,
	// and by Aliases.
	Hostname string   `json:"hostname,omitempty"`
	Aliases  []string `json:"aliases,omitempty"`
}

// The states of a container that another can wait for.
const (
	StateStarted   = "started"   // its program was started
	StateHealthy   = "healthy"   // its healthcheck has passed
	StateCompleted = "completed" // its program has ended with exit code 0
)

// MainContainer is the name of the container that the agent works in.
const MainContainer = "main"

// Volume is a named volume, shared by all containers of the task that list it.
// It starts empty, or with the content of Target in the image of the first
// container that mounts it. It is removed with the sandbox.
type Volume struct {
	Name   string `json:"name"`
	Target string `json:"target"` // absolute, in the container
	// ReadOnly says that this container cannot write to it.
	ReadOnly bool `json:"read_only,omitempty"`
}

// StartOrder returns the names of all containers, including main, each after
// those that it depends on. Otherwise it keeps the order of Sidecars, with main
// as early as possible. Containers that wait for each other are in loop.
func (e *Environment) StartOrder() (order, loop []string) {
	left := []string{MainContainer}
	needs := map[string]map[string]string{MainContainer: e.DependsOn}
	for i := range e.Sidecars {
		left = append(left, e.Sidecars[i].Name)
		needs[e.Sidecars[i].Name] = e.Sidecars[i].DependsOn
	}
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(name string) bool {
			for other := range needs[name] {
				if _, known := needs[other]; known && !slices.Contains(order, other) {
					return false
				}
			}
			return true
		})
		if i < 0 {
			return order, left
		}
		order = append(order, left[i])
		left = slices.Delete(left, i, i+1)
	}
	return order, nil
}
