// Package testreport reads the results of single tests from files that test programs
// write: CTRF (ctrf.json) and JUnit XML. The files are untrusted: sizes are bounded,
// and names have no control characters.
//
// It must not decide what the results mean for an attempt.
package testreport

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/berth-eval/berth/plugins/verifier"
)

// The bounds of a report. A report that is longer than MaxBytes must not be given to
// Read; of more than MaxTests tests the failed ones are kept first.
const (
	MaxBytes = 3 << 20
	MaxTests = 1000
	maxText  = 200 // bytes of a name, and of a note
)

// Report has the results of a test program.
type Report struct {
	Passed, Failed, Skipped int // of all tests
	// Tests are at most MaxTests of them, in the order of the file. Empty: the
	// report has counts only.
	Tests []verifier.Checkpoint
}

// Ran is how many tests ran.
func (r *Report) Ran() int { return r.Passed + r.Failed }

// Read reads a report in either format.
func Read(data []byte) (*Report, error) {
	data = bytes.TrimSpace(bytes.ToValidUTF8(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("?")))
	if bytes.HasPrefix(data, []byte("<")) {
		return junit(data)
	}
	return ctrf(data)
}

// add adds a test.
func (r *Report) add(c verifier.Checkpoint) {
	switch {
	case c.Passed:
		r.Passed++
	case c.Skipped:
		r.Skipped++
	default:
		r.Failed++
	}
	c.Name, c.Note = line(c.Name), line(c.Note)
	if c.Name == "" {
		c.Name = "(no name)"
	}
	r.Tests = append(r.Tests, c)
}

// bounded leaves out tests that are too many.
func (r *Report) bounded() *Report {
	if len(r.Tests) > MaxTests {
		failed := func(c verifier.Checkpoint) bool { return !c.Passed && !c.Skipped }
		slices.SortStableFunc(r.Tests, func(a, b verifier.Checkpoint) int {
			switch {
			case failed(a) == failed(b):
				return 0
			case failed(a):
				return -1
			}
			return 1
		})
		r.Tests = r.Tests[:MaxTests:MaxTests]
	}
	return r
}

// line returns the beginning of a text in one line.
func line(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), 4*maxText)], "")
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText-len("…")], "") + "…"
	}
	return text
}

// The words of CTRF for a test that did not run, and for one that passed. Anything
// else, such as other, did not pass.
var notRun = []string{"skipped", "pending"}

func ctrf(data []byte) (*Report, error) {
	var file struct {
		Results *struct {
			Summary map[string]json.RawMessage `json:"summary"`
			Tests   []struct {
				Name    string          `json:"name"`
				Status  string          `json:"status"`
				Message json.RawMessage `json:"message"`
			} `json:"tests"`
		} `json:"results"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("not CTRF: %w", err)
	}
	if file.Results == nil || file.Results.Tests == nil && file.Results.Summary == nil {
		return nil, errors.New("not CTRF: it has no results")
	}
	r := &Report{}
	for _, t := range file.Results.Tests {
		status := strings.ToLower(t.Status)
		c := verifier.Checkpoint{Name: t.Name, Passed: status == "passed", Skipped: slices.Contains(notRun, status)}
		if !c.Passed {
			c.Note = status
			var message string
			if json.Unmarshal(t.Message, &message) == nil && message != "" {
				c.Note += ": " + message
			}
		}
		r.add(c)
	}
	if len(file.Results.Tests) > 0 {
		return r.bounded(), nil
	}
	for name, raw := range file.Results.Summary {
		var n float64
		if json.Unmarshal(raw, &n) != nil || n < 0 || n > 1e9 {
			continue
		}
		switch name {
		case "passed":
			r.Passed = int(n)
		case "failed", "other":
			r.Failed += int(n)
		case "skipped", "pending":
			r.Skipped += int(n)
		}
	}
	return r, nil
}

// junit reads the elements testcase, at any depth, of a testsuite or testsuites.
func junit(data []byte) (*Report, error) {
	d := xml.NewDecoder(bytes.NewReader(data))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil } // it is valid UTF-8 already
	r, test, root, depth := &Report{}, (*verifier.Checkpoint)(nil), false, 0
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) && root && depth == 0 {
			return r.bounded(), nil
		} else if err != nil {
			return nil, fmt.Errorf("not JUnit XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if !root && t.Name.Local != "testsuite" && t.Name.Local != "testsuites" {
				return nil, fmt.Errorf("not JUnit XML: the root is %.40q, not testsuites", t.Name.Local)
			}
			root = true
			depth++
			switch t.Name.Local {
			case "testcase":
				test = &verifier.Checkpoint{Name: strings.TrimPrefix(attr(t, "classname")+"."+attr(t, "name"), "."), Passed: true}
			case "failure", "error", "skipped":
				if test != nil && (test.Passed || test.Skipped) {
					test.Passed, test.Skipped = false, t.Name.Local == "skipped"
					test.Note = strings.TrimSuffix(t.Name.Local+": "+attr(t, "message"), ": ")
				}
			}
		case xml.EndElement:
			depth--
			if t.Name.Local == "testcase" && test != nil {
				r.add(*test)
				test = nil
			}
		}
	}
}

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
