package environment

import (
	"context"
	"encoding/json"
	"time"
)

// Surface is optional (capability "surface"): the observe-and-act side of a
// sandbox, such as a browser page, a desktop or a game. One value serves many
// surfaces at once: every method is safe for concurrent use.
//
// Surfaces are served to agents by the core, which checks and records every
// observation, action and frame. Step.Reward, Step.Info and what Capture writes
// are for the host and the verifier: the core strips them before an agent sees
// a step. The bounds of a call are in package surface.
//
// Except as said below, errors are those of a surface that is broken: the core
// does not use it any more, and the attempt ends. ErrNoSandbox means that the
// id is unknown or gone. ErrRefused means that the sandbox or the machine lacks
// something that the surface needs: the attempt is not retried, and the
// conformance kit skips the clause.
type Surface interface {
	// Needs says what a surface needs and offers. It is pure: the same request
	// gets the same answer, and nothing is started. plan and validate call it.
	Needs(ctx context.Context, r SurfaceRequest) (SurfaceNeeds, error)
	// OpenSurface creates a surface on one of the plugin's own sandboxes, or on
	// a sandbox of another plugin, whose addresses are in spec. It is called
	// once for each attempt.
	OpenSurface(ctx context.Context, spec SurfaceSpec) (id string, err error)
	// Reset puts the surface into the initial state of a level, which may be
	// empty. The same level and seed give the same state. Only the core calls
	// it, before each stage of a task; the seed is the repetition.
	Reset(ctx context.Context, id string, start Start) (Observation, error)
	// Observe returns the current observation and changes nothing. want are the
	// kinds to return; empty means all.
	Observe(ctx context.Context, id string, want []string) (Observation, error)
	// Act performs one action and observes what want says. If the surface
	// refuses the action, Act returns a Step with Error set, not an error. If
	// ctx ends, the action has ended before the next call is answered.
	Act(ctx context.Context, id string, call Call, want []string) (Step, error)
	// Capture writes what settings say into folder, which is empty, and returns
	// the names of the files, relative to it. Here an error only means that
	// there is no capture; ErrInvalid, that the name or the settings are not known.
	Capture(ctx context.Context, id string, c Capture) ([]string, error)
	// CloseSurface frees the surface. Idempotent.
	CloseSurface(ctx context.Context, id string) error
}

// SurfaceRequest is the input of Needs.
type SurfaceRequest struct {
	Config   json.RawMessage `json:"config,omitempty"`   // the experiment's block
	Settings json.RawMessage `json:"settings,omitempty"` // the task's settings for the environment
	Level    string          `json:"level,omitempty"`    // of a stage of the task; empty: the task names none
}

// SurfaceNeeds is what a surface asks of the sandbox, and what it offers.
type SurfaceNeeds struct {
	Mounts       []Mount        `json:"mounts,omitempty"`
	Ports        map[string]int `json:"ports,omitempty"`      // name → port inside, for SurfaceSpec.Ports
	ShmMiB       int64          `json:"shm_mib,omitempty"`    // of /dev/shm, at least; 0: any
	MemoryMiB    int64          `json:"memory_mib,omitempty"` // at least; 0: any
	Shell        bool           `json:"shell,omitempty"`      // for SurfaceSpec.Shell
	Actions      []Action       `json:"actions,omitempty"`
	Observations []string       `json:"observations,omitempty"`               // the kinds
	Pictures     []string       `json:"pictures,omitempty"`                   // of the kinds: recorded at every step, whatever the agent gets
	Refusals     []string       `json:"refusals,omitempty"`                   // why it cannot be opened, and what to do
	ResetTime    time.Duration  `json:"reset_time,omitempty" wire:"reset_ms"` // how much longer than other calls Reset may take; whole milliseconds, at most an hour
}

// The kinds with a fixed meaning. Equal states may differ in the last three: they
// are about time and about the agent's own actions.
const (
	KindText    = "text"              // of Observation.Text
	KindElapsed = "elapsed"           // seconds since the last Reset
	KindAction  = "last_action"       // the last action with its arguments
	KindFailure = "last_action_error" // why it was refused; empty: it was not
)

// SurfaceSpec is the input of OpenSurface.
type SurfaceSpec struct {
	Sandbox  string            `json:"sandbox,omitempty"`  // id of a sandbox of this plugin; empty: of another plugin
	Shell    string            `json:"shell,omitempty"`    // address of a shell in it, with SurfaceNeeds.Shell
	Ports    map[string]string `json:"ports,omitempty"`    // name of a port inside → address on the host ("unix:/path")
	Config   json.RawMessage   `json:"config,omitempty"`   // the experiment's block
	Settings json.RawMessage   `json:"settings,omitempty"` // the task's settings for the environment
	Frames   string            `json:"frames,omitempty"`   // folder for frames over 1 MiB
	Files    string            `json:"files,omitempty"`    // folder with the task's files for the environment; empty: none
	Scratch  string            `json:"scratch,omitempty"`  // folder on node-local disk for the plugin, until CloseSurface
	User     string            `json:"user,omitempty"`     // as whom commands of the agent run
	Workdir  string            `json:"workdir,omitempty"`  // where they start
	Proxy    string            `json:"proxy,omitempty"`    // URL of the core's proxy, inside the sandbox; empty: none
}

// Start is the input of Reset.
type Start struct {
	Level string   `json:"level,omitempty"`
	Seed  int64    `json:"seed"`
	Want  []string `json:"want,omitempty"` // kinds to return; empty: all
}

// Action is one thing an agent can do.
type Action struct {
	Name   string          `json:"name"`
	Doc    string          `json:"doc,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"` // JSON Schema of the arguments, an object; empty: none
}

// Call is one call of an action.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // an object; empty: none
	More      bool            `json:"more,omitempty"`      // another action of the same reply of the model follows; for the core alone
}

// Observation is what is seen at one moment, in parts. Each part is of a kind
// with a name: Text is of KindText, a frame is of the kind of its name, and the
// members of JSON, an object, are of the kinds of their names.
type Observation struct {
	Text   string          `json:"text,omitempty"`
	JSON   json.RawMessage `json:"json,omitempty" wire:"structure_json"` // structured: accessibility tree, grid
	Frames []Frame         `json:"frames,omitempty"`
}

// Frame is one picture, given as bytes or, over 1 MiB, as a file of
// SurfaceSpec.Frames, which the core removes.
type Frame struct {
	Name      string `json:"name"`       // its kind: "screenshot"
	MediaType string `json:"media_type"` // image/png, image/jpeg, image/webp
	Data      []byte `json:"data,omitempty"`
	Path      string `json:"path,omitempty"` // relative to SurfaceSpec.Frames
}

// Step is the result of one action.
type Step struct {
	Observation Observation     `json:"observation"`
	Reward      *float64        `json:"reward,omitempty"`    // nil: the surface gives none
	Done        bool            `json:"done,omitempty"`      // the episode is over; only Reset continues
	Truncated   bool            `json:"truncated,omitempty"` // it is over because of a bound
	Error       string          `json:"error,omitempty"`     // why the action was refused
	Info        json.RawMessage `json:"info,omitempty"`
}

// Capture says what to capture.
type Capture struct {
	Name     string          `json:"name"`
	Settings json.RawMessage `json:"settings,omitempty"` // the task's, for this capture
	Folder   string          `json:"folder"`
}

// SurfaceOnly returns the environment of a plugin that has surfaces and makes no
// sandboxes (capability "no_sandboxes"): its surfaces are opened on the
// sandboxes of other plugins.
func SurfaceOnly(s Surface) Environment { return surfaceOnly{s} }

type surfaceOnly struct{ Surface }

func (surfaceOnly) Check(context.Context, Spec) (Report, error) {
	return Report{Refusals: []Problem{{
		Summary: "The plugin makes no sandboxes", Detail: "It only has a surface: name another plugin in the environment block, and this one as surface.",
	}}}, nil
}

func (e surfaceOnly) Create(ctx context.Context, s Spec) (Sandbox, error) {
	r, err := e.Check(ctx, s)
	if err == nil {
		err = r.Err()
	}
	return Sandbox{}, err
}

func (surfaceOnly) Destroy(context.Context, string) (Remains, error) { return Remains{}, nil }

func (surfaceOnly) List(context.Context, string) ([]string, error) { return nil, nil }
