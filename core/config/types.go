package config

import (
	"encoding/json"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

// Options are the user's choices for loading. The zero value reads no host
// variable and no file outside the experiment's folder.
type Options struct {
	// Vars are --var NAME=VALUE, in order; the last of a name wins.
	Vars []string
	// VarFiles are --var-file PATH, in order, as HCL attributes or (*.json) as a
	// JSON object. Vars win over VarFiles, these over BERTH_VAR_name.
	VarFiles []string
	// AllowRead are folders outside the experiment's that functions may read.
	AllowRead []string
	// LookupEnv reads a host variable for env(), secret() and BERTH_VAR_name;
	// nil means that none is set.
	LookupEnv func(name string) (string, bool)
	// BaseDir is the folder that relative paths start from; empty means the
	// folder of the experiment. For an experiment that is read back from a run.
	BaseDir string
	// Kept is where a run keeps its copy of a file that functions read or that
	// holds the replies of a model, by the name that it has in Experiment.Files.
	// Nil reads files where they are; with it only copies are read.
	Kept func(name string) string
	// DefaultEnvironment is the plugin of an experiment that names no
	// environment; empty means that it must name one.
	DefaultEnvironment string
	// Providers are the names that a model's provider may have; empty means any.
	Providers []string
	// Schemas asks plugins what their `config` blocks may hold; nil takes the
	// blocks as they are, without a check.
	Schemas Schemas
	// Formats are the names that a dataset's format may have; empty means any.
	Formats []string
}

// Kind is the kind of a plugin, as in Describe.
type Kind string

// The kinds of plugins.
const (
	KindAgent       Kind = "agent"
	KindEnvironment Kind = "environment"
	KindVerifier    Kind = "verifier"
)

// Schemas returns the configuration schema of a plugin. Its error says why
// there is none (no such plugin, it does not start) and is shown at the block
// that names the plugin. Called once per plugin, from one goroutine.
type Schemas func(kind Kind, plugin string) (pluginconfig.Schema, error)

// RunLimits bound the whole run. Nil means no limit, or, for InFlight, that
// the runner chooses.
type RunLimits struct {
	InFlight *int           `json:"in_flight,omitempty"` // attempts at the same time
	Time     *time.Duration `json:"time_ns,omitempty"`   // from the start of the run; what is not begun by then is not run
	CostUSD  *float64       `json:"cost_usd,omitempty"`
	Tokens   *int64         `json:"tokens,omitempty"` // input and output
	Requests *int64         `json:"requests,omitempty"`
}

// PerCell bounds what all models are used for in all attempts of a cell. Nil
// means no limit. It decides no result that is there, so it may change between
// a run and its resumption, and is no part of what a trial is.
type PerCell struct {
	CostUSD  *float64 `json:"cost_usd,omitempty"`
	Tokens   *int64   `json:"tokens,omitempty"` // input and output
	Requests *int64   `json:"requests,omitempty"`
}

// Retry says which attempts are run again, and how often.
type Retry struct {
	Max     int              `json:"max"`         // further attempts of a trial; 0 means none
	On      []record.Outcome `json:"on"`          // of them only; never a measured outcome
	Wait    time.Duration    `json:"wait_ns"`     // before the first retry, doubled for each further one
	MaxWait time.Duration    `json:"max_wait_ns"` // longest wait
}

// Executor says where attempts run. Kind "local" is this machine; any other
// kind is for the runner to know or to refuse by name.
type Executor struct {
	Kind      string        `json:"kind"`
	Workers   int           `json:"workers,omitempty"` // pilot jobs at the same time
	Partition string        `json:"partition,omitempty"`
	Account   string        `json:"account,omitempty"`
	QOS       string        `json:"qos,omitempty"`
	Time      time.Duration `json:"time_ns,omitempty"` // of one worker
	CPUs      int           `json:"cpus,omitempty"`    // of one worker
	MemoryMiB int64         `json:"memory_mib,omitempty"`
	GPUs      int           `json:"gpus,omitempty"`
	Options   []string      `json:"options,omitempty"` // further options, as the scheduler spells them
	Setup     string        `json:"setup,omitempty"`   // shell lines before a worker starts
}

// Axis is one free choice of the matrix.
type Axis struct {
	Name   string      `json:"name"`
	Values []AxisValue `json:"values"`
}

// AxisValue is one value of an axis.
type AxisValue struct {
	// Text is the value for people: the label of a block, a string as it is,
	// JSON for anything else.
	Text string `json:"text"`
	// JSON is the value; a block is its label.
	JSON json.RawMessage `json:"value"`
}

// Choice is the value that a cell has on an axis.
type Choice struct {
	Axis string `json:"axis"`
	AxisValue
}

// File is a file that the experiment is made of.
type File struct {
	// Name is slash-separated and relative to the folder of the experiment, or
	// absolute when it is outside.
	Name  string
	Bytes []byte
	// Read says that a function read it (file, yamldecode, …); false is an
	// *.hcl file of the experiment.
	Read bool
}

// Cell is one point of the matrix, with every block that it uses resolved.
type Cell struct {
	// Index is the position in the plan, from 0.
	Index int `json:"index"`
	// Key names the cell for people and selection: "agent=a,effort=low"; empty
	// without a matrix.
	Key string `json:"key"`
	// Slug is Key for file names: lower case letters, digits, "." "_" and "-",
	// at most 60 bytes, unique in the experiment, never empty.
	Slug    string   `json:"slug"`
	Choices []Choice `json:"choices"`

	Agent       cell.Agent       `json:"agent"`
	Environment cell.Environment `json:"environment"`
	// Datasets are never empty.
	Datasets []Dataset `json:"datasets"`
	// Verifiers are by label: what the experiment adds to the verifiers that
	// tasks name. One that is not here has no configuration and no models but
	// the cell's.
	Verifiers map[string]cell.Verifier `json:"verifiers,omitempty"`
	// User plays the simulated user of tasks that have one; nil means that the
	// experiment has none.
	User *cell.User `json:"user,omitempty"`
	// Model is the cell's own; nil means that none was chosen.
	Model *cell.Model `json:"model,omitempty"`
	// Verify is the mode that the experiment asks for; empty keeps the task's.
	// A dataset's own is in Dataset.
	Verify   task.Mode   `json:"verify,omitempty"`
	PerTrial cell.Limits `json:"per_trial"`
	PerCell  PerCell     `json:"per_cell,omitzero"`

	exp *Experiment
}

// Dataset is a folder of tasks.
type Dataset struct {
	Label  string `json:"label"`
	Format string `json:"format"`
	// Path is absolute.
	Path    string   `json:"path"`
	Include []string `json:"include,omitempty"` // globs of task names; empty means all
	Exclude []string `json:"exclude,omitempty"`
	// Limit keeps the first tasks in order of their names; 0 keeps all. Sample
	// keeps that many, drawn with Seed; 0 keeps all.
	Limit  int   `json:"limit,omitempty"`
	Sample int   `json:"sample,omitempty"`
	Seed   int64 `json:"seed,omitempty"`
	// Lenient turns unknown keys in the tasks' files into warnings.
	Lenient bool `json:"lenient,omitempty"`
	// Verify is the mode asked for, with the experiment's as default; empty
	// keeps the task's.
	Verify task.Mode `json:"verify,omitempty"`
	// Success replaces the rule of the tasks; nil keeps it.
	Success *Success `json:"success,omitempty"`
}

// Success is when an attempt passes.
type Success struct {
	Key     string  `json:"key"`      // name of the score
	AtLeast float64 `json:"at_least"` // smallest value that passes
}
