package output

import "github.com/berth-eval/berth/cmd/berth/internal/notes"

// Notes is what `berth note` says.
type Notes struct {
	Run     string       `json:"run"` // its folder
	Notes   []notes.Note `json:"notes"`
	Damaged int          `json:"damaged,omitempty"` // lines of the file that are not notes
}
