package output

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
