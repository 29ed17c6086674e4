package uniclaw

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// Whatever the file of a task says, reading it ends, and a task that is made obeys
// the rules.
func FuzzLoad(f *testing.F) {
	f.Add(least)
	f.Add("task_id: t\ncategory: c\ntask: &x [*x]\n")
	dir := dataset(f, nil)
	file := filepath.Join(dir, "tasks/c/t.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, problems, err := Format{}.Load(t.Context(), file, task.Options{})
		if err != nil || got == nil && len(problems) == 0 {
			t.Fatalf("%v, %v", problems, err)
		}
		if got == nil {
			return
		}
		for _, p := range got.Validate() {
			t.Errorf("%s", p)
		}
	})
}
