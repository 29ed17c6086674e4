package drift_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
)

// Files that were written or replaced after a moment are listed, whatever time a
// program gave them, and folders that lost a file.
func TestFilesThatAreNewerThanAMomentAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string) error {
		path := filepath.Join(dir, name)
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(name), 0o600))
	}
	old := errors.Join(write("task.toml"), write("tests/test.sh"), write("tests/data/a"), write("solution/solve.sh"), write(".git/HEAD"))
	time.Sleep(20 * time.Millisecond) // the file system's clock has ticks
	made := time.Now()
	time.Sleep(20 * time.Millisecond) // as above
	err := errors.Join(old, write("tests/test.sh"), os.Remove(filepath.Join(dir, "tests/data/a")), write("solution/new.sh"), write(".git/index"),
		os.Chtimes(filepath.Join(dir, "solution/new.sh"), time.Unix(1, 0), time.Unix(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := drift.NewerFiles(dir, []string{dir}, made), []string{"solution/new.sh", "tests/data/", "tests/test.sh"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range 20 {
		if err = write(fmt.Sprintf("many/%02d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := drift.NewerFiles(dir, []string{dir}, made); len(got) != 11 || got[10] != "and 14 more" {
		t.Errorf("many: %q", got)
	}
	if got := drift.NewerFiles(filepath.Join(dir, "gone"), []string{filepath.Join(dir, "gone")}, made); len(got) != 0 {
		t.Errorf("a folder that is not there: %q", got)
	}
}
