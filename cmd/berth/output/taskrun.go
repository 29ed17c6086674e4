package output

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
	Check   string `json:"check"`             // oracle, nop, cheat, flaky, empty, network, answers, history
	Subject string `json:"subject,omitempty"` // the cheat
	Mode    string `json:"mode,omitempty"`    // verification mode; empty: the check has none
	Verdict string `json:"verdict"`           // held, failed, warning, skipped
	Detail  string `json:"detail,omitempty"`
	File    string `json:"file,omitempty"`  // below the task's folder
	Line    int    `json:"line,omitempty"`  // 0: the whole file
	Trial   string `json:"trial,omitempty"` // whose attempt shows it
}
