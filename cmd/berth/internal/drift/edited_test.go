package drift

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/store"
)

// A run says where its experiment was read, and may be a stranger's: a pipe
// there does not block the command that shows the run.
func TestAPipeInTheExperimentIsNotRead(t *testing.T) {
	t.Parallel()
	m := &store.Manifest{}
	m.Header.Dir, m.Header.Files = t.TempDir(), map[string]string{"pipe": "sha256:0"}
	if err := syscall.Mkfifo(filepath.Join(m.Header.Dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := EditedFiles(m); slices.Contains(got, "pipe") {
		t.Errorf("a pipe counts as a file that was edited: %q", got)
	}
}
