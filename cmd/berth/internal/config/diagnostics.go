package config

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Severity is how bad a diagnostic is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the experiment cannot be run
	Warning Severity = "warning" // it can, but perhaps not as meant
)

// Pos is a place in a file. Line and Column begin at 1; Column counts
// characters as a reader does. The zero value is not a place.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// Diagnostic is one problem of an experiment and where it is.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Summary  string   `json:"summary"`
	Detail   string   `json:"detail,omitempty"`
	File     string   `json:"file,omitempty"` // as the user would name it; empty: no place
	Start    Pos      `json:"start,omitzero"`
	End      Pos      `json:"end,omitzero"` // exclusive

	diag  *hcl.Diagnostic
	files map[string]*hcl.File
}

// Diagnostics are all the problems found, in the order of the files. They are
// an error when one of them is; see [Diagnostics.Err].
type Diagnostics []Diagnostic

// HasErrors says whether one of them is an error.
func (ds Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Severity == Error })
}

// Err is ds as an error, or nil when there are warnings at most.
func (ds Diagnostics) Err() error {
	if ds.HasErrors() {
		return ds
	}
	return nil
}

// Error is the diagnostics as short text, one line each.
func (ds Diagnostics) Error() string {
	lines := make([]string, len(ds))
	for i, d := range ds {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// String is the diagnostic on one line.
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		fmt.Fprintf(&b, "%s:%d:%d: ", d.File, d.Start.Line, d.Start.Column)
	}
	if d.Severity == Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(d.Summary)
	if d.Detail != "" {
		b.WriteString(": " + strings.ReplaceAll(d.Detail, "\n", " "))
	}
	return b.String()
}

// WriteText prints the diagnostics for people, with the lines that they are
// about. Colour is for terminals.
func (ds Diagnostics) WriteText(w io.Writer, color bool) error {
	for _, d := range ds {
		if err := hcl.NewDiagnosticTextWriter(w, d.files, 0, color).WriteDiagnostic(d.hcl()); err != nil {
			return fmt.Errorf("write diagnostics: %w", err)
		}
	}
	return nil
}

// MarshalJSON writes a list, also when there is none.
func (ds Diagnostics) MarshalJSON() ([]byte, error) {
	if ds == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]Diagnostic(ds))
}

func (d Diagnostic) hcl() *hcl.Diagnostic {
	out := hcl.Diagnostic{Summary: d.Summary, Detail: d.Detail}
	if d.diag != nil {
		out = *d.diag
	}
	out.Severity = hcl.DiagError
	if d.Severity == Warning { // which may have been set since
		out.Severity = hcl.DiagWarning
	}
	return &out
}

// fromHCL makes the diagnostics of this package of those of HCL.
func fromHCL(diags hcl.Diagnostics, files map[string]*hcl.File) Diagnostics {
	var ds Diagnostics
	for _, diag := range diags {
		d := Diagnostic{Severity: Error, Summary: diag.Summary, Detail: diag.Detail, diag: diag, files: files}
		if diag.Severity == hcl.DiagWarning {
			d.Severity = Warning
		}
		if s := diag.Subject; s != nil {
			d.File = s.Filename
			d.Start, d.End = Pos{s.Start.Line, s.Start.Column}, Pos{s.End.Line, s.End.Column}
		}
		ds = append(ds, d)
	}
	return ds
}
