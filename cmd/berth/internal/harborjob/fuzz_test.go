package harborjob

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/store"
)

// A job of Harbor of a stranger is refused, or becomes a run whose folders are below
// its own.
func FuzzImport(f *testing.F) {
	f.Add(`{"task_name":"../../x","trial_name":"t","verifier_result":{"rewards":{"reward":1}}}`, `{"agents":[{"name":"a"}]}`, `{"schema_version":"ATIF-v1.4","steps":[]}`)
	f.Fuzz(func(t *testing.T, result, settings, steps string) {
		job := t.TempDir()
		write(t, filepath.Join(job, configFile), settings)
		write(t, filepath.Join(job, resultFile), `{"id":"x"}`)
		write(t, filepath.Join(job, "t__1", resultFile), result)
		write(t, filepath.Join(job, "t__1", configFile), settings)
		write(t, filepath.Join(job, "t__1", "agent", "trajectory.json"), steps)
		done, err := Import(job, t.TempDir(), "test")
		if err != nil {
			return
		}
		m, _, err := store.Read(done.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, tr := range m.Trials {
			if !filepath.IsLocal(tr.Dir) || strings.Contains(tr.Dir, "/") {
				t.Errorf("folder %q", tr.Dir)
			}
		}
	})
}
