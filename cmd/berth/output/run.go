package output

import (
	"github.com/berth-eval/berth/cmd/berth/internal/notes"
)

// Export is what `berth export` says.
type Export struct {
	Run    string `json:"run"` // folder
	Format string `json:"format"`
	Path   string `json:"path"`
	// Rows is the number of rows of a table, of trials of a job, or of
	// trajectories.
	Rows    int      `json:"rows"`
	Columns int      `json:"columns,omitempty"` // of a table
	Notes   []string `json:"notes,omitempty"`   // what is missing, and why
}

// Import is what `berth import` says.
type Import struct {
	Dir    string   `json:"dir"` // of the run
	Trials int      `json:"trials"`
	Notes  []string `json:"notes,omitempty"` // what is missing, and why
}

// Report is what `berth report` says.
type Report struct {
	Path  string `json:"path"` // of the page
	Bytes int    `json:"bytes"`
}

// Notes is what `berth note` says.
type Notes struct {
	Run     string       `json:"run"` // its folder
	Notes   []notes.Note `json:"notes"`
	Damaged int          `json:"damaged,omitempty"` // lines of the file that are not notes
}

// Gate is what `berth compare --baseline` says: which tasks got worse.
type Gate struct {
	Run      string `json:"run"`      // folder
	Baseline string `json:"baseline"` // folder
	// Tasks are those that both runs measured, once for each cell.
	Tasks []GateTask `json:"tasks"`
	Worse int        `json:"worse"`
	// Failed are the rules of --require that do not hold.
	Failed []string `json:"failed_requirements,omitempty"`
	// Confirmed are the folders of the runs of --confirm.
	Confirmed []string `json:"confirmed,omitempty"`
	// Marks are the reasons for which the numbers would have been refused without
	// --force.
	Marks []string `json:"marks,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// GateTask is a task in a cell.
type GateTask struct {
	Cell   string `json:"cell"`
	Task   string `json:"task"`
	Before Tries  `json:"before"`
	Now    Tries  `json:"now"`
	// Again are the further trials of --confirm; nil: there are none.
	Again *Tries `json:"again,omitempty"`
	Worse bool   `json:"worse"`
	Trial string `json:"trial,omitempty"` // a trial that did not solve it
}

// Tries are the measured trials of a task in a cell.
type Tries struct {
	Solved   int `json:"solved"`
	Measured int `json:"measured"`
}

// Replay is what `berth replay` says: how attempts that ran again on the recorded
// replies of models agree with the recorded ones.
type Replay struct {
	Run    string `json:"run"` // folder of the recorded run, or the archive
	Dir    string `json:"dir"` // folder of the new run
	Trials int    `json:"trials"`
	// Agree counts the trials that agree in everything that is compared.
	Agree     int             `json:"agree"`
	Outcomes  int             `json:"same_outcomes"`
	Scores    int             `json:"same_scores"`
	ToolCalls int             `json:"same_tool_calls"`
	Requests  int             `json:"same_requests"`
	Differ    []ReplayedTrial `json:"differ,omitempty"`
	// Skipped are trials that cannot be replayed, and why.
	Skipped []ReplayedTrial `json:"skipped,omitempty"`
}

// ReplayedTrial is a trial whose replay differs, or that was not replayed.
type ReplayedTrial struct {
	Trial string `json:"trial"` // folder
	// Differences has the first difference of each kind.
	Differences []string `json:"differences,omitempty"`
	Why         string   `json:"why,omitempty"`
}

// PlanPilots is what the pilots of a run take at most.
type PlanPilots struct {
	Pilots int `json:"pilots"` // at the same time
	// Hours are those of all pilots together, if every attempt takes as long as it
	// may, with all retries. Absent: some attempt has no limit.
	Hours *float64 `json:"hours,omitempty"`
}

// Detached is what `berth run --detach` says.
type Detached struct {
	Dir string `json:"dir"` // of the run
	Job string `json:"job"` // that carries it
}
