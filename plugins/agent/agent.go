// Package agent is the contract of agent plugins: programs that work on a
// task, either from the host (a loop over a shell or a surface) or by running a
// program inside the sandbox.
//
// It holds types, sentinels and the gRPC shims of the contract. It must not
// know any scaffold, and nothing in it grades.
package agent

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// Agent opens sessions. One value serves many attempts at once: every method
// is safe for concurrent use.
type Agent interface {
	// Check reports what a session with this configuration needs. It has no side
	// effects: plan calls it, and the core calls it again before it creates a
	// sandbox.
	Check(ctx context.Context, r CheckRequest) (Needs, error)
	// Open starts a session: one agent in one sandbox. The addresses in setup are
	// valid for the whole session, but answer only during Open and Turn. ctx
	// covers only this call: it ends when Open returns, and the session continues.
	Open(ctx context.Context, setup Setup) (Session, error)
}

// Session is one agent at work. Calls of one session come one after another.
type Session interface {
	// Turn passes one user message to the agent and returns when the agent
	// yields. It records steps as they happen, so that the steps of a killed
	// agent are kept. When ctx ends, the core has already cut the agent's
	// access; Turn must return soon, and its result is ignored. If a program of
	// the agent fails, Turn returns a Yield with End Crashed. An error means that
	// the plugin itself could not continue.
	Turn(ctx context.Context, m Message, r Recorder) (Yield, error)
	// Close ends the session. It is called once, after the last turn. logs is a
	// folder on the host with the files of Needs.Logs, collected from the
	// sandbox, so that Close can record what a killed program left there.
	Close(ctx context.Context, logs string, r Recorder) error
}

// Recorder records what happens in a session, live. Its methods are safe for
// concurrent use and fail only if the core has ended.
type Recorder interface {
	// Step records one step of the trajectory; its StepID is set by the core.
	Step(s trajectory.Step) error
	// Log records a line for people.
	Log(line string) error
	// Artifact records a file that the plugin wrote to Setup.Scratch: path is
	// relative to it.
	Artifact(path string) error
}

// CheckRequest is the input of Check.
type CheckRequest struct {
	Config json.RawMessage       `json:"config,omitempty"`
	Models map[string]model.Info `json:"models,omitempty"` // by name; "default" is the cell's model
	Role   Role                  `json:"role"`
}

// Needs is what a session needs from the core.
type Needs struct {
	Shell    bool            `json:"shell,omitempty"`    // commands and files in the sandbox
	Surface  bool            `json:"surface,omitempty"`  // observe and act: it cannot do a task without a surface
	Terminal bool            `json:"terminal,omitempty"` // implies Shell
	Dialects []model.Dialect `json:"dialects,omitempty"` // that it can speak; empty: it uses no model
	Bundles  []Bundle        `json:"bundles,omitempty"`  // folders of the host to mount read-only
	Logs     []string        `json:"logs,omitempty"`     // absolute paths in the sandbox, collected before Close
	Refusals []string        `json:"refusals,omitempty"` // why it cannot run like this: what, and what to do
	// KeepsSession says that a session continues with its conversation in a later
	// stage of the task, and after a turn that was cut off. Before that, the core
	// may end every process in the sandbox; files stay. Without it, plan refuses to
	// run several stages in one session, and a simulated user does not speak after
	// a turn that was cut off.
	KeepsSession bool `json:"keeps_session,omitempty"`
	// TakesPrior says that a session can continue from Setup.Prior. Without it,
	// plan refuses tasks with a prior trajectory, unless the agent uses no model.
	TakesPrior bool `json:"takes_prior,omitempty"`
	// Skills says that the agent makes the skills of Setup.Skills known to its model
	// itself. Without it, the core says in the first message where they are, if the
	// agent has a shell; without one, plan refuses tasks with skills.
	Skills bool `json:"skills,omitempty"`
	// MCP are the transports of the servers in Setup.Servers that it offers its model
	// as tools: stdio, sse, streamable-http. The others are as skills are.
	MCP []string `json:"mcp,omitempty"`
}

// SkillsOf returns the names of the skills that an agent brings itself: the labels of
// the blocks `skill` in its configuration, whatever else that has.
func SkillsOf(config json.RawMessage) []string {
	var c struct {
		Skills map[string]json.RawMessage `json:"skill"`
	}
	if json.Unmarshal(config, &c) != nil {
		return nil // an agent without skills may have any value under this name
	}
	return slices.Sorted(maps.Keys(c.Skills))
}

// OnlyShell implements Check for an agent that needs only a shell and accepts
// every valid configuration. Embed it.
type OnlyShell struct{}

// Check asks for a shell.
func (OnlyShell) Check(context.Context, CheckRequest) (Needs, error) {
	return Needs{Shell: true}, nil
}

// Bundle is a read-only folder with the programs of an agent. After the last
// turn, every process that runs a file of the bundle is killed.
type Bundle struct {
	Source string `json:"source"` // absolute, on the host
	Target string `json:"target"` // absolute, in the sandbox
	Digest string `json:"digest,omitempty"`
	Name   string `json:"name,omitempty"` // for people: "name@version"
}

// Role is the part that an agent plays.
type Role string

// The roles. The zero value is not valid.
const (
	RoleAgent  Role = "agent"
	RoleUser   Role = "user"   // plays the simulated user: its yield is the next message
	RoleOracle Role = "oracle" // has the reference solution
)

// Setup is the input of Open.
type Setup struct {
	Session   string                    `json:"session"` // opaque, unique in the run
	Role      Role                      `json:"role"`
	View      string                    `json:"view"`                // folder: task.json, instruction.md, the resources by their names; those of the new stage once the session continues in it
	Shell     string                    `json:"shell,omitempty"`     // address of a shell ("unix:/path"); empty without
	Surface   string                    `json:"surface,omitempty"`   // address of a surface (surface.Dial); empty without
	Models    map[string]model.Endpoint `json:"models,omitempty"`    // by name
	Prior     string                    `json:"prior,omitempty"`     // file: a trajectory to continue from (ATIF)
	Servers   []Server                  `json:"servers,omitempty"`   // MCP servers of the task
	Skills    []string                  `json:"skills,omitempty"`    // absolute paths in the sandbox
	Limits    Limits                    `json:"limits"`              //
	Scratch   string                    `json:"scratch,omitempty"`   // empty folder on the host, kept in the attempt as agent/
	Config    json.RawMessage           `json:"config,omitempty"`    // the experiment's block
	Workdir   string                    `json:"workdir,omitempty"`   // where commands start
	User      string                    `json:"user,omitempty"`      // as whom they run; empty: root or the image's
	Reference *Reference                `json:"reference,omitempty"` // with RoleOracle only
	// Seed is where chance begins: the same number for the same task and
	// repetition, in every cell, attempt and run, and another one for others. It is
	// not negative.
	Seed int64 `json:"seed,omitempty"`
}

// Reference is a task's own solution.
type Reference struct {
	Folder string            `json:"folder"` // on the host
	Place  string            `json:"place"`  // absolute path in the sandbox where it belongs
	Argv   []string          `json:"argv"`   // runs it
	Env    map[string]string `json:"env,omitempty"`
}

// Limits bound a session. Zero means no limit.
type Limits struct {
	Time     time.Duration `json:"time,omitempty"` // of each turn; the core enforces it
	MaxSteps int64         `json:"max_steps,omitempty"`
}

// Server is an MCP server of a task.
type Server struct {
	Name      string            `json:"name"`
	Transport string            `json:"transport"` // stdio, sse, streamable-http
	URL       string            `json:"url,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Command   string            `json:"command,omitempty"`
	Args      []string          `json:"args,omitempty"`
	Env       map[string]string `json:"env,omitempty"` // of the command
}

// Message is one user message.
type Message struct {
	Stage string   `json:"stage,omitempty"` // name of the stage it belongs to
	Turn  int      `json:"turn"`            // 1… within the session
	Text  string   `json:"text"`
	Files []string `json:"files,omitempty"` // pictures of a multimodal instruction, relative to the view
	// Time is how long the turn may take, without the time that the session waits
	// for a provider. The core enforces it. Zero: not known.
	Time time.Duration `json:"time,omitempty"`
}

// End is how a turn ended, as the agent reports it.
type End string

// The ends. The zero value is not valid. There are none for a timeout, a used-up
// budget or a lost sandbox, because the core detects those itself.
const (
	Done     End = "done"
	Asked    End = "asked" // waits for an answer of the user
	MaxSteps End = "max_steps"
	Refused  End = "refused"
	Crashed  End = "crashed"
)

// Yield is the end of a turn.
type Yield struct {
	End      End    `json:"end"`
	Message  string `json:"message,omitempty"`   // the agent's last words to the user
	ExitCode int    `json:"exit_code,omitempty"` // of its program, where there is one
	Reason   string `json:"reason,omitempty"`    // stop reason, for people
	Claim    *Claim `json:"claim,omitempty"`     // nil: it says nothing of what it used
}

// Claim is the usage of models in a turn as the agent reports it. Only the usage
// that the gateway metered counts; a difference is a finding. Nil means that the
// agent did not report the value.
type Claim struct {
	Input  *int64   `json:"input_tokens,omitempty"` // cached ones and those written to a cache included
	Cached *int64   `json:"cached_tokens,omitempty"`
	Output *int64   `json:"output_tokens,omitempty"`
	Cost   *float64 `json:"cost_usd,omitempty"`
}

// The errors of agents. The core sees them as the same errors: errors.Is works
// across the wire.
var (
	ErrBadConfig = fault.ErrBadConfig // never retry
	ErrModel     = fault.ErrModel     // outcome model_error
	ErrNoSession = fault.ErrNoSession // another plugin process opened the session
)
