package config

import (
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins"
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

// KindFormat is the kind under which Schemas is asked for the settings of a task
// format: they are in the `config` block of a dataset.
const KindFormat plugins.Kind = "dataset"

// Schemas returns the configuration schema of a plugin. Its error says why
// there is none (no such plugin, it does not start) and is shown at the block
// that names the plugin. Called once per plugin, from one goroutine.
type Schemas func(kind plugins.Kind, plugin string) (pluginconfig.Schema, error)

// RunLimits bound the whole run. Nil means no limit; for InFlight, Waiting and
// MemoryMiB that the runner chooses. They do not affect results.
type RunLimits struct {
	Places
	Waiting     *int              `berth:"waiting" doc:"With a limit verifying: number of attempts whose agent has finished, and whose verification has not begun. They keep their sandboxes. While it is reached, no attempt starts. Absent: four times in_flight."`
	MemoryMiB   *int64            `berth:"memory_mib" doc:"What the tasks of all attempts together may ask for, in MiB. Absent: the memory of this machine that is free at the start of the run. A task that asks for more runs while no other task with such a limit does."`
	Environment map[string]Places `berth:"environment" doc:"Limits for the attempts in one environment, by the label of its block."`
	Agent       map[string]Places `berth:"agent" doc:"Limits for the attempts of one agent, by the label of its block."`
	Model       map[string]Places `berth:"model" doc:"Limits for the attempts whose agent uses a model, by the label of its block. For requests with one key see in_flight of the model."`
	Time        *time.Duration    `berth:"time" doc:"Time limit of the run. Attempts that have not started by then are not run."`
	CostUSD     *float64          `berth:"cost_usd" doc:"What all models of the run may cost, in USD."`
	Tokens      *int64            `berth:"tokens" doc:"Input and output tokens of the run."`
	Requests    *int64            `berth:"requests" doc:"Model requests of the run."`
}

// Places bound how many attempts do something at the same time. Nil means no
// limit.
type Places struct {
	InFlight  *int `berth:"in_flight" doc:"Number of attempts at the same time. With a limit verifying, attempts that are being verified do not count. Absent: no limit, and for the whole run the number of processors."`
	Building  *int `berth:"building" doc:"Number of attempts at the same time whose image is being prepared, or whose sandbox is being created."`
	Verifying *int `berth:"verifying" doc:"Number of attempts at the same time that are being verified. They no longer count as in_flight, so that a slow verification keeps no attempt from starting."`
}

// Blocks returns the limits of single environments, agents and models, by the
// type of the block and its label.
func (l *RunLimits) Blocks() map[string]map[string]Places {
	return map[string]map[string]Places{"environment": l.Environment, "agent": l.Agent, "model": l.Model}
}

// Keep says which attempts keep the files that differ from the image.
type Keep struct {
	Which string // "failed", "all", or empty: none
	MiB   int64  // the most that an attempt keeps
}

// Retry says which attempts are run again, and how often.
type Retry struct {
	Max     int              `berth:"max" default:"0" doc:"Number of further attempts of a trial."`
	On      []record.Outcome `berth:"on" default:"[\"environment_error\", \"rate_limited\", \"plugin_crashed\", \"preempted\"]" enum:"environment_error,verifier_error,model_error,user_error,rate_limited,plugin_crashed,artifact_missing,preempted" doc:"Outcomes after which a trial gets another attempt."`
	Wait    time.Duration    `berth:"wait" default:"1s" doc:"Wait before the first further attempt. It doubles with each one after that."`
	MaxWait time.Duration    `berth:"max_wait" default:"1m" doc:"Longest wait."`
}

// Report says how tables of the results are made. It does not affect results.
type Report struct {
	MaxInfrastructure float64 `berth:"max_infrastructure" default:"0.02" doc:"Largest share of a cell's planned trials, from 0 to 1, that may have ended for reasons that are not the agent's. With more, berth show --by and berth compare refuse to print numbers."`
	Exposed           bool    `berth:"exposed" default:"true" doc:"false: numbers are refused if a result is exposed."`
	Weigh             string  `berth:"weigh" enum:"category" doc:"With \"category\", all categories of tasks weigh the same in success rates, however many tasks each has. Absent: all trials weigh the same."`
}

// Executor says where attempts run. Kind "local" is this machine; any other
// kind is for the runner to know or to refuse by name.
type Executor struct {
	Kind      string        `berth:"-"`
	Workers   int           `berth:"workers" doc:"Number of workers at the same time."`
	Partition string        `berth:"partition" doc:"Queue that workers are submitted to."`
	Account   string        `berth:"account" doc:"Account to charge."`
	QOS       string        `berth:"qos" doc:"Quality of service."`
	Time      time.Duration `berth:"time" default:"0s" doc:"Time limit of a worker."`
	CPUs      int           `berth:"cpus" doc:"Cores of a worker."`
	MemoryMiB int64         `berth:"memory_mib" doc:"Memory of a worker in MiB."`
	GPUs      int           `berth:"gpus" doc:"GPUs of a worker."`
	Options   []string      `berth:"options" doc:"Further options, as the scheduler writes them."`
	Setup     string        `berth:"setup" doc:"Shell lines that a worker runs first."`
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

// Cell is one point of the matrix, with every block that it uses resolved: what
// its attempts have in common, and what only a plan needs.
type Cell struct {
	cell.Cell

	// Index is the position in the plan, from 0.
	Index int
	// Key names the cell for people and selection: "agent=a,effort=low"; empty
	// without a matrix.
	Key string
	// Slug is Key for file names: lower case letters, digits, "." "_" and "-",
	// at most 60 bytes, unique in the experiment, never empty.
	Slug string
	// Datasets are never empty.
	Datasets []Dataset
	// Model is the cell's own; nil means that none was chosen.
	Model *cell.Model
	// PerCell bounds all attempts of the cell together.
	PerCell cell.Budget

	exp *Experiment
}

// On is the cell as an attempt on a task of one of its datasets has it, with the
// labels of secrets: good for questions, not for running. See [cell.Cell.Reveal].
func (c *Cell) On(d *Dataset) cell.Cell {
	out := c.Cell
	out.Verify, out.System, out.Success = d.Verify, d.System, d.Success
	return out
}

// Dataset is a folder of tasks.
type Dataset struct {
	Label  string `berth:"-"`
	Format string `berth:"format" required:"true" doc:"Task format of the folder."`
	// Path is absolute once the experiment is loaded.
	Path    string   `berth:"path" required:"true" doc:"Folder of tasks, relative to the folder of the experiment."`
	Include []string `berth:"include" doc:"Globs of task names to run. Absent: all."`
	Exclude []string `berth:"exclude" doc:"Globs of task names to leave out."`
	Limit   int      `berth:"limit" doc:"Number of tasks to keep, the first ones by name. 0: all."`
	Sample  int      `berth:"sample" doc:"Number of tasks to draw at random, with seed. 0: all."`
	Seed    int64    `berth:"seed" doc:"Seed of sample: the same seed draws the same tasks."`
	Lenient bool     `berth:"lenient" doc:"Unknown keys in the tasks' files are warnings instead of errors."`
	// AllowEnv are patterns as of path.Match.
	AllowEnv []string  `berth:"allow_env" doc:"Host variables that the tasks may read, such as [\"EVAL_*\"]; as with --allow-env."`
	Verify   task.Mode `berth:"verify" enum:"live,restarted,snapshot,separate,copies" doc:"Verification mode, instead of the experiment's."`
	System   string    `berth:"system" enum:"image" doc:"Where the system files of a snapshot come from, instead of what the experiment says."`
	// Success replaces the rule of the tasks; nil keeps it.
	Success *task.Success `berth:"-"`
	// Config are the settings of the format.
	Config cell.Values `berth:"-"`
}
