package trial

import (
	"context"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/egress"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
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
	Cell cell.Cell

	Record   Attempt           // where the attempt is written down
	Runtime  string            // new or empty node-local folder, 0700, perhaps in memory, with a path of at most 60 bytes; removed at the end
	Disk     string            // new folder for what is too large for memory, made when it is needed; removed at the end; empty: Runtime will do
	Sandboxd string            // path of sandboxd as installed on this machine
	Plugins  Plugins           // never nil
	Checker  *feasible.Checker // shared by the attempts of a run; nil asks plugins each time
	Gateway  models.Gateway    // nil: there are no models
	Egress   egress.Options    // of hosts that a task lists; zero values are this machine's
	// Drift refuses what an attempt would be made with when earlier ones were made
	// with something else; nil: there is nothing to compare.
	Drift     func(r *record.Result) error
	LookupEnv func(name string) (string, bool)
	Live      func(record.Event) // nil: nobody watches; must not block
	Now       func() time.Time   // nil: time.Now
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

// Plugins gives access to the plugins of a run. Each call returns a plugin
// that works now: one that has died was started again. The error of a call to
// a plugin that dies under it wraps plugin.ErrPluginGone.
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

	// OwnProcess starts the verifier in a process of its own, for one caller, who
	// stops it. Nil: there is no such thing.
	OwnProcess func(ctx context.Context) (v verifier.Verifier, stop func(), err error)
}
