package export

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/runtest"
)

// Whatever stands in one file of a run, all formats are written or refused.
func FuzzRunFolder(f *testing.F) {
	dir := testRun(f).Dir
	out := f.TempDir()
	runtest.Fuzz(f, dir, func(t *testing.T, _ string, _, _ []byte) {
		runs, err := numbers.Read(dir)
		if err != nil {
			return
		}
		r := &Run{Run: runs[0], Trials: runs[0].Index.Trials}
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
