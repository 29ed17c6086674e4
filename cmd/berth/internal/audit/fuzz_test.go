package audit_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/audit"
)

// Whatever stands in one file of a run, the audit ends, and it does not call a
// folder sound in which a file was changed.
func FuzzRunFolder(f *testing.F) {
	dir := forged(f, nil, "1", request)
	files := plain(f, dir)
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
		got, err := audit.Run(dir, nil)
		if err == nil && got.Problems == 0 && !bytes.Equal(before, content) {
			t.Errorf("%s was changed, and nothing is wrong: %q", file, content)
		}
	})
}

// plain returns the files below dir.
func plain(tb testing.TB, dir string) (files []string) {
	tb.Helper()
	must(tb, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	}))
	return files
}
