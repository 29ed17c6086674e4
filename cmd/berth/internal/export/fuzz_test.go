package export

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/store"
)

// Whatever stands in one file of a run, all formats are written or refused.
func FuzzRunFolder(f *testing.F) {
	dir := testRun(f).Dir
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
	out := f.TempDir()
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
		r := &Run{Dir: dir, Manifest: m, Index: x, Trials: x.Trials}
		for _, format := range []Format{CSV, JSONL, Parquet} {
			if _, err = Table(r, format, filepath.Join(out, "table")); err != nil {
				t.Logf("%s: %v", format, err)
			}
		}
		folder := filepath.Join(out, "trajectories")
		_ = os.RemoveAll(folder) // from the last execution
		if _, err = Trajectories(r, folder); err != nil {
			t.Log(err)
		}
	})
}
