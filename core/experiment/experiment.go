// Package experiment has what a run executes: the cells of an experiment with
// their datasets, and the limits of the run. A plan is made from it.
//
// It must not know how an experiment is written: the tags only declare the
// attributes of the types that are blocks of an experiment file.
package experiment

import (
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
)

// Experiment is what a run executes. It is safe for concurrent use, because
// nothing changes it once it is made.
type Experiment struct {
	Repeat   int // repetitions of every cell × task, at least 1
	Limits   RunLimits
	Keep     Keep
	Retry    Retry
	Executor Executor
	// Cells are never empty.
	Cells []*Cell
}

// RunLimits bound the whole run. Nil means no limit; for InFlight and
// MemoryMiB that the runner chooses. They do not affect results.
type RunLimits struct {
	Places
	MemoryMiB   *int64            `berth:"memory_mib" doc:"What the tasks of all attempts together may ask for, in MiB. Absent: what is free on this machine at the start of the run."`
	Environment map[string]Places `berth:"environment" doc:"Limits for the attempts in one environment, by the label of its block."`
	Agent       map[string]Places `berth:"agent" doc:"Limits for the attempts of one agent, by the label of its block."`
	Model       map[string]Places `berth:"model" doc:"Limits for the attempts whose agent uses a model, by the label of its block. For requests with one key see in_flight of the model."`
	Time        *time.Duration    `berth:"time" doc:"Time limit of the run. Attempts that have not started by then are not run."`
	cell.Budget
}

// Places bound how many attempts do something at the same time. Nil means no
// limit.
type Places struct {
	InFlight  *int `berth:"in_flight" doc:"Number of attempts at the same time. Absent: no limit, and for the whole run the number of processors."`
	Building  *int `berth:"building" doc:"Number of attempts at the same time whose image is being prepared, or whose sandbox is being created."`
	Verifying *int `berth:"verifying" doc:"Number of attempts at the same time that are being verified. Those that wait for it stay in flight."`
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
	Max  int              `berth:"max" required:"true" max:"100" doc:"Number of further attempts of a trial. 0: none."`
	On   []record.Outcome `berth:"on" default:"[\"environment_error\", \"rate_limited\", \"plugin_crashed\", \"preempted\"]" enum:"environment_error,verifier_error,judge_error,model_error,user_error,rate_limited,plugin_crashed,artifact_missing,preempted" doc:"Outcomes after which a trial gets another attempt."`
	Wait time.Duration    `berth:"wait" default:"1s" doc:"Wait before the first further attempt. It doubles with each one after that, up to a minute."`
}

// Executor says where attempts run. Kind "local" is this machine; any other
// kind is for the runner to know or to refuse by name.
type Executor struct {
	Kind        string        `berth:"-"`
	Workers     int           `berth:"workers" doc:"Number of pilots at the same time, with slurm."`
	Partition   string        `berth:"partition" doc:"Queue that pilots are submitted to."`
	Account     string        `berth:"account" doc:"Account to charge."`
	QOS         string        `berth:"qos" doc:"Quality of service."`
	Time        time.Duration `berth:"time" default:"0s" doc:"Time limit of a pilot."`
	CPUs        int           `berth:"cpus" doc:"Cores of a pilot."`
	MemoryMiB   int64         `berth:"memory_mib" doc:"Memory of a pilot in MiB."`
	Options     []string      `berth:"options" doc:"Further options, as the scheduler writes them, such as \"--gpus=2\"."`
	Setup       string        `berth:"setup" doc:"Shell lines that a pilot runs first."`
	InFlight    int           `berth:"in_flight" doc:"Attempts of a pilot at the same time. 0: as many as it has cores."`
	Scratch     string        `berth:"scratch" doc:"Folder on a disk of a pilot's machine for attempts that are under way. Absent: the first of the job's own folder, $TMPDIR and /tmp that is not shared and has room."`
	CopyBundles bool          `berth:"copy_bundles" doc:"Whether a pilot first copies the bundles of agents to a disk of its machine, once a machine, and uses the copies."`
	Grace       time.Duration `berth:"grace" default:"2m" doc:"Time that a pilot has to end its attempts, before its time limit and when it is preempted."`
	Idle        time.Duration `berth:"idle" default:"5m" doc:"A pilot ends when there was nothing to do for this long."`
	LostAfter   time.Duration `berth:"lost_after" default:"1m" doc:"A pilot counts as lost when nothing was heard of it for this long. At least three times as long as the shared file system remembers the content of a folder."`
	Models      string        `berth:"models" enum:"direct,relay" doc:"How pilots reach models. relay: through berth run, which has the keys and the budgets. direct: from their own machine. Absent: relay for models with a key and for runs with a budget, else direct."`
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
}

// On is the cell as an attempt on a task of one of its datasets has it, with the
// labels of secrets: good for questions, not for running. See [cell.Cell.Reveal].
func (c *Cell) On(d *Dataset) cell.Cell {
	out := c.Cell
	out.Verify, out.Work, out.Success = d.Verify, d.Work, d.Success
	return out
}

// Dataset is a folder of tasks.
type Dataset struct {
	Label  string `berth:"-"`
	Format string `berth:"format" required:"true" doc:"Task format of the folder."`
	// Path is absolute.
	Path    string   `berth:"path" required:"true" doc:"Folder of tasks, relative to the folder of the experiment."`
	Include []string `berth:"include" doc:"Globs of task names to run. Absent: all."`
	Exclude []string `berth:"exclude" doc:"Globs of task names to leave out."`
	Limit   int      `berth:"limit" doc:"Number of tasks to keep, the first ones by name. 0: all."`
	Lenient bool     `berth:"lenient" doc:"Unknown keys in the tasks' files are warnings instead of errors."`
	// AllowEnv are patterns as of path.Match.
	AllowEnv []string  `berth:"allow_env" doc:"Host variables that the tasks may read, such as [\"EVAL_*\"]; as with --allow-env."`
	Verify   task.Mode `berth:"-"` // of the cell
	// Work are absolute.
	Work []string `berth:"work" doc:"Folders of the sandbox that are work of the task although they lie in one of the system, such as /usr/local: to change them does not make a result exposed, and verify = \"image\" copies them."`
	// Success replaces the rule of the tasks; nil keeps it.
	Success *task.Success `berth:"-"`
	// Config are the settings of the format.
	Config cell.Values `berth:"-"`
}
