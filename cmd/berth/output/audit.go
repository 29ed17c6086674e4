package output

import "github.com/berth-eval/berth/cmd/berth/summary"

// Audit is what `berth audit` says: what of a run was computed again from its raw
// records, and what could not be.
type Audit struct {
	Version  int    `json:"version"` // of the format of this page: 1
	Run      string `json:"run"`     // id of the run
	Manifest string `json:"manifest"`
	// Journals are the checksums of the journals, "sha256:" and hex, by name. With
	// Manifest they fix every file that the checks cover.
	Journals map[string]string `json:"journals"`
	Checks   []AuditCheck      `json:"checks"`
	// Problems counts those of all checks; 0 means that the run is what its
	// records say.
	Problems int `json:"problems"`
	// Outcomes, Integrity and Modes count the accepted attempts of the trials.
	Outcomes  map[string]int `json:"outcomes"`
	Integrity map[string]int `json:"integrity"`
	Modes     map[string]int `json:"modes"`
	// Interventions are what people did during the run that can change results.
	Interventions []string      `json:"interventions,omitempty"`
	Cells         []summary.Row `json:"cells"` // computed again
}

// AuditCheck is one kind of check.
type AuditCheck struct {
	Name    string `json:"name"`
	What    string `json:"what"`    // a sentence
	Checked int    `json:"checked"` // number of things, such as files
	// Problems are what differs, and where. At most 100 are listed; More counts
	// the others.
	Problems []AuditProblem `json:"problems,omitempty"`
	More     int            `json:"more,omitempty"`
	// Unchecked says what cannot be checked, and why.
	Unchecked []string `json:"unchecked,omitempty"`
}

// AuditProblem is something that is not as it was recorded.
type AuditProblem struct {
	File string `json:"file"`           // below the folder of the run
	Line int    `json:"line,omitempty"` // from 1; absent: all of the file
	Text string `json:"text"`
}
