package output

import "github.com/berth-eval/berth/plugins/task"

// TaskCheck is what `berth task check` says.
type TaskCheck struct {
	Format string       `json:"format"`
	Valid  int          `json:"valid"`
	Tasks  []TaskReport `json:"tasks"`
	Other  []string     `json:"other,omitempty"` // folders that are not a task and have none below
	Deep   []string     `json:"deep,omitempty"`  // folders that were not looked into: they lie too deep
	// Problems are those of the dataset as a whole: tasks that it lists and has not got.
	Problems []task.Problem `json:"problems,omitempty"`
	// Foreign says which folders hold tasks of another format, which were not checked.
	Foreign []string       `json:"other_formats,omitempty"`
	Suites  []TaskSuite    `json:"suites"`
	Sum     map[string]int `json:"needs,omitempty"` // how many tasks ask for a feature
}

// TaskSuite counts the tasks of one folder, or of one file with several.
type TaskSuite struct {
	Path  string `json:"path"`
	Valid int    `json:"valid"`
	Tasks int    `json:"tasks"`
}

// TaskReport is one task with its problems.
type TaskReport struct {
	Path     string         `json:"path"`
	Name     string         `json:"name"`
	Digest   string         `json:"digest,omitempty"`
	Valid    bool           `json:"valid"`
	Problems []task.Problem `json:"problems,omitempty"`
	Needs    []task.Need    `json:"needs,omitempty"`
	Installs string         `json:"installs,omitempty"` // line of the tests that gets programs from elsewhere, in the agent's sandbox
	Task     *task.Task     `json:"task,omitempty"`
	Run      *TaskRun       `json:"run,omitempty"` // with --run, and for a valid task
}

// TaskRun is what `berth task check --run` found by running a task.
type TaskRun struct {
	Environment string        `json:"environment"` // plugin
	Times       int           `json:"times"`       // how often the solution, nop and each cheat ran in each mode
	Runs        []string      `json:"runs"`        // folders
	Verdicts    []TaskVerdict `json:"verdicts"`
	Failed      int           `json:"failed"` // verdicts that are failed
}

// TaskVerdict is the verdict of one check.
type TaskVerdict struct {
	Check   string `json:"check"`             // oracle, nop, cheat, flaky, network, answers, history
	Subject string `json:"subject,omitempty"` // the cheat
	Mode    string `json:"mode,omitempty"`    // verification mode; empty: the check has none
	Verdict string `json:"verdict"`           // held, failed, warning, skipped
	Detail  string `json:"detail,omitempty"`
	File    string `json:"file,omitempty"`  // below the task's folder
	Trial   string `json:"trial,omitempty"` // whose attempt shows it
}
