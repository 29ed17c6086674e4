package harbor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// What `berth init` writes must be a task in its user's eyes, too: no warning.
func TestTheSampleIsWithoutProblems(t *testing.T) {
	t.Parallel()
	name, sample, err := Format{}.Sample()
	if err != nil || len(sample) < 5 {
		t.Fatalf("%d files, %v", len(sample), err)
	}
	dir := filepath.Join(t.TempDir(), name)
	for _, f := range sample {
		file := filepath.Join(dir, f.Path)
		if err = os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err = os.WriteFile(file, f.Text, 0o600); err != nil {
			t.Fatal(err)
		}
		if f.Executable != (string(f.Text[:2]) == "#!") {
			t.Errorf("%s: executable is %t", f.Path, f.Executable)
		}
	}
	made, problems, err := Format{}.Load(t.Context(), dir, task.Options{})
	if err != nil || made == nil || len(problems) > 0 || made.Stages[0].Reference == nil {
		t.Errorf("%v, %v, %v", made, problems, err)
	}
}
