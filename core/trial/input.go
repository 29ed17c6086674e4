package trial

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/berth-eval/berth/core/record"
	inside "github.com/berth-eval/berth/core/sandbox"
	"github.com/berth-eval/berth/core/trial/blame"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Input is all that an attempt is made of.
type Input struct {
	Run        string // owner label of what is made; unique on this machine
	Trial      string // trial id
	Repetition int    // 1…; the seed of surfaces
	Attempt    int    // 1…
	Host       string // name of this machine, for the record
	Berth      string // version of this program, for the record

	Task *task.Task
	Cell Cell

	Record    Attempt // where the attempt is written down
	Runtime   string  // new or empty node-local folder, 0700, perhaps in memory, with a path of at most 60 bytes; removed at the end
	Disk      string  // new folder for what is too large for memory, made when it is needed; removed at the end; empty: Runtime will do
	Sandboxd  string  // path of sandboxd as installed on this machine
	Plugins   Plugins // never nil
	Gateway   Gateway // nil: there are no models
	LookupEnv func(name string) (string, bool)
	Live      func(record.Event) // nil: nobody watches; must not block
	Now       func() time.Time   // nil: time.Now
}

// Cell is one point of the matrix, resolved: secrets are plain values here,
// and their own list says which they are, so that they can be kept out of the
// record.
type Cell struct {
	Choices     map[string]string // axis to value, for the record
	Agent       Agent
	Environment Environment
	Verifiers   map[string]Verifier // by the name that tasks use; one that is missing is the plugin of that name
	User        *User               // nil: no simulated user
	Verify      task.Mode           // empty keeps the task's
	Success     *task.Success       // nil keeps the task's
	Limits      Limits
	Secrets     []string // values that must not reach a file
}

// Agent is the agent of a cell.
type Agent struct {
	Plugin string
	Oracle bool // is given the reference solution
	Config json.RawMessage
	Env    map[string]string
	Models map[string]Model // by the name that the plugin asks for
}

// Environment is the environment of a cell.
type Environment struct {
	Plugin  string
	Config  json.RawMessage
	Env     map[string]string // wins over the task's
	Network *task.Network     // what the experiment grants; nil grants what the task asks
	Limits  task.Limits       // replace those of the task where they are not zero
}

// Verifier is what the experiment adds to a verifier that a task names.
type Verifier struct {
	Plugin string // empty: the name
	Config json.RawMessage
	Env    map[string]string
	Models map[string]Model
}

// User plays the simulated user.
type User struct {
	Agent
	Persona string
	Time    time.Duration // of one message; 0: the usual
	Budget  Budget        // of its models, in all its sessions of the attempt
}

// Model is one model as the gateway is asked for it.
type Model struct {
	ID    string // by which the gateway knows it
	Label string // of the experiment's block
	Info  model.Info
}

// Limits bound an attempt. Zero keeps what the task says.
type Limits struct {
	AgentTime          time.Duration // of each turn
	AgentTimeFactor    float64
	VerifierTime       time.Duration
	VerifierTimeFactor float64
	StartTime          time.Duration // of create
	StartTimeFactor    float64
	MaxSteps           int64
	Budget             Budget // of the agent's models, in all its sessions of the attempt
}

// Budget bounds what models are used for. Nil means no bound.
type Budget struct {
	CostUSD  *float64
	Tokens   *int64 // input and output
	Requests *int64
}

// Attempt is where an attempt is written down (package store).
type Attempt interface {
	// Dir is the folder of the attempt.
	Dir() string
	// Append adds v as one line of JSON to a file of the folder, at once.
	Append(file string, v any) error
	// WriteFile writes a file of the folder, whole or not at all.
	WriteFile(file string, data []byte) error
	// Publish writes the result. It is the last call.
	Publish(r record.Result) error
}

// ErrPreempted is the cause with which a caller cancels an attempt that the
// machine's owner takes away.
var ErrPreempted = blame.ErrPreempted

// ErrRateLimited is wrapped by what ModelSession.Down returns when the provider
// takes no more requests.
var ErrRateLimited = blame.ErrRateLimited

// Plugins gives access to the plugins of a run. Each call returns a plugin
// that works now: one that has died was started again. The error of a call to
// a plugin that dies under it wraps ErrPluginGone.
type Plugins interface {
	Agent(ctx context.Context, name string) (agent.Agent, record.PluginUsed, error)
	Environment(ctx context.Context, name string) (environment.Environment, record.PluginUsed, error)
	Verifier(ctx context.Context, name string) (VerifierPlugin, record.PluginUsed, error)
}

// Incarnations is optional: Plugins that have it say which process of a plugin
// runs. When a sandbox is lost and its environment's process is not the one that
// made it, the process was the cause, and not the agent.
type Incarnations interface {
	// Incarnation grows with each start of the process behind an environment.
	Incarnation(environment string) int
}

// VerifierPlugin is a verifier, which may be a verifier.Rewriter, with what it
// said of itself.
type VerifierPlugin struct {
	verifier.Verifier
	Traits verifier.Traits
}

// Gateway gives sessions their models.
type Gateway interface {
	// Session opens the models of one session. Until Allow nothing answers.
	Session(ctx context.Context, spec ModelSpec) (ModelSession, error)
}

// ModelSpec says for whom models are wanted.
type ModelSpec struct {
	Trial      string
	Attempt    int
	Task       string // its name
	Repetition int
	Role       string // agent, user, judge
	Models     map[string]Model
	Budget     Budget // shared by all sessions of the role in the attempt
	Hosted     bool   // tools that a provider runs itself, such as a search, may be used
	// Dir is the folder of the attempt, and Append adds a line of JSON to a file
	// of it; nil writes nothing down.
	Dir    string
	Append func(file string, line any)
	// Dialects are what the plugin speaks, for an endpoint that can choose.
	Dialects []model.Dialect
	// Inside opens a loopback port in the sandbox for the endpoint; nil when
	// the session has no sandbox.
	Inside func(ctx context.Context, port int, serve func(net.Conn)) (*inside.Port, error)
}

// ModelSession is the models of one session.
type ModelSession interface {
	Endpoints() map[string]model.Endpoint
	// Allow lets requests through, until Revoke.
	Allow(ctx context.Context) error
	Revoke(ctx context.Context) error
	// Spent is closed when a budget has run out.
	Spent() <-chan struct{}
	// Down is why the provider could not serve, or nil. What wraps
	// ErrRateLimited makes the attempt rate_limited, all else model_error.
	Down() error
	// Waited is the time that requests waited for a rate limit so far.
	Waited() time.Duration
	Usage() []record.Usage
	// Findings are what was odd about its requests.
	Findings() []verifier.Finding
	Close(ctx context.Context) error
}
