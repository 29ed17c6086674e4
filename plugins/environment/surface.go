package environment

import (
	"context"
	"encoding/json"
)

// Surface is optional (capability "surface"): the observe-and-act side of a
// sandbox, such as a browser page, a desktop or a game. Experimental: the core
// opens no surface yet, and the interface may change until it does.
//
// Surfaces are served to agents by the core, which records every observation,
// action and frame. Step.Reward, Step.Info and what Capture writes are for the
// host and the verifier: the core strips them before an agent sees a step.
type Surface interface {
	// OpenSurface creates a surface on one of the plugin's own sandboxes, or on
	// a sandbox of another plugin, whose addresses are in spec.
	OpenSurface(ctx context.Context, spec SurfaceSpec) (id string, err error)
	// Actions returns the actions that Act accepts.
	Actions(ctx context.Context, id string) ([]Action, error)
	// Reset puts the surface into its initial state; the same seed gives the
	// same state. Only the core calls it; seed is the repetition.
	Reset(ctx context.Context, id string, seed int64) (Observation, error)
	// Observe returns the current observation and changes nothing.
	Observe(ctx context.Context, id string, want []string) (Observation, error)
	// Act performs one action. If the surface refuses the action, Act returns a
	// Step with Error set, not an error.
	Act(ctx context.Context, id string, call Call) (Step, error)
	// Capture writes what the task's settings define under name into folder and
	// returns the names of the files, relative to folder.
	Capture(ctx context.Context, id, name, folder string) ([]string, error)
	// CloseSurface frees the surface. Idempotent.
	CloseSurface(ctx context.Context, id string) error
}

// SurfaceSpec is the input of OpenSurface.
type SurfaceSpec struct {
	Sandbox  string            `json:"sandbox,omitempty"`  // id of a sandbox of this plugin; empty: of another plugin
	Shell    string            `json:"shell,omitempty"`    // address of a shell in it, with another plugin's sandbox
	Ports    map[string]string `json:"ports,omitempty"`    // name of a port inside → address on the host
	Config   json.RawMessage   `json:"config,omitempty"`   // the experiment's block
	Settings json.RawMessage   `json:"settings,omitempty"` // the task's: level, pages, URL
	Frames   string            `json:"frames,omitempty"`   // folder for frames over 1 MiB
}

// Action is one thing an agent can do.
type Action struct {
	Name   string          `json:"name"`
	Doc    string          `json:"doc,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"` // JSON Schema of the arguments; empty: none
}

// Call is one call of an action.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Observation is what is seen at one moment.
type Observation struct {
	Text   string          `json:"text,omitempty"`
	JSON   json.RawMessage `json:"json,omitempty"` // structured: accessibility tree, grid
	Frames []Frame         `json:"frames,omitempty"`
}

// Frame is one picture, given as bytes or, over 1 MiB, as a file of
// SurfaceSpec.Frames.
type Frame struct {
	MediaType string `json:"media_type"` // image/png, image/jpeg, image/webp
	Data      []byte `json:"data,omitempty"`
	Path      string `json:"path,omitempty"` // relative to SurfaceSpec.Frames
}

// Step is the result of one action.
type Step struct {
	Observation Observation     `json:"observation"`
	Reward      *float64        `json:"reward,omitempty"` // nil: the surface gives none
	Done        bool            `json:"done,omitempty"`
	Truncated   bool            `json:"truncated,omitempty"`
	Error       string          `json:"error,omitempty"` // why the action was refused
	Info        json.RawMessage `json:"info,omitempty"`
}
