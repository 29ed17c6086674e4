package report_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/agreement"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/store"
)

// Whatever stands in one file of a run, it is shown, and nothing of it controls the
// terminal.
func FuzzRunFolder(f *testing.F) {
	dir := runOf(f)
	var files []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	}); err != nil {
		f.Fatal(err)
	}
	for i := range files {
		f.Add(i, []byte("{}\n"))
	}
	f.Fuzz(func(t *testing.T, which int, content []byte) {
		file := files[uint(which)%uint(len(files))]
		before, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer os.WriteFile(file, before, 0o600) //nolint:errcheck // the next execution reads it
		m, x, err := store.Read(dir)
		if err != nil {
			return
		}
		var b bytes.Buffer
		p := &terminal.Printer{Out: &b}
		report.Run(dir, m, x)
		report.Trials(p, dir, m, x, &report.Filter{})
		for _, tr := range x.Trials {
			report.TrialHead(p, m, tr, nil, 0)
			report.Trial(dir, m, x, tr)
			for i := range tr.Attempts {
				number := tr.Attempts[i].Number
				folder := report.Folder(dir, tr, number)
				if full, err := report.Attempt(folder, report.StateOf(x, tr, number)); err == nil {
					report.AttemptText(p, full, true)
				}
				if _, err = agreement.Compare(folder, folder); err != nil {
					t.Log(err)
				}
				if err = report.Surface(p, folder, false, true); err != nil {
					t.Log(err)
				}
			}
		}
		if bytes.ContainsAny(b.Bytes(), "\x1b\x07\x00") {
			t.Errorf("the terminal is told %q", b.Bytes())
		}
	})
}
