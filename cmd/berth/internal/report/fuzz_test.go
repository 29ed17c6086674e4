package report_test

import (
	"bytes"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/agreement"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/runtest"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// Whatever stands in one file of a run, it is shown, and nothing of it controls the
// terminal.
func FuzzRunFolder(f *testing.F) {
	dir := runOf(f)
	runtest.Fuzz(f, dir, func(t *testing.T, _ string, _, _ []byte) {
		s, err := report.ReadState(dir, report.Filter{})
		if err != nil {
			return
		}
		m, x := s.Manifest, s.Index
		var b bytes.Buffer
		p := &terminal.Printer{Out: &b}
		s.Document()
		s.Text(p)
		for _, tr := range x.Trials {
			report.TrialHead(p, m, tr, nil, 0)
			report.Trial(dir, m, x, tr)
			for i := range tr.Attempts {
				number := tr.Attempts[i].Number
				attempt(t, p, report.Folder(dir, tr, number), report.StateOf(x, tr, number))
			}
		}
		if bytes.ContainsAny(b.Bytes(), "\x1b\x07\x00") {
			t.Errorf("the terminal is told %q", b.Bytes())
		}
	})
}

func attempt(t *testing.T, p *terminal.Printer, folder string, state output.AttemptState) {
	t.Helper()
	if full, err := report.Attempt(folder, state); err == nil {
		report.AttemptText(p, full, true)
	}
	if _, err := agreement.Compare(folder, folder); err != nil {
		t.Log(err)
	}
}
