package output

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
