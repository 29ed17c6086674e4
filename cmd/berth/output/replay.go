package output

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
