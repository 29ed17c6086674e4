package gauntlet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// published is the folder with published tasks, as data.
func published(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../shared/published/gauntletbench")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = os.Stat(dir); err != nil {
		t.Skipf("published tasks are not here: %v", err)
	}
	return dir
}

// The published tasks are valid as they are. Without settings a page is a note where
// tasks are only described, and an error where they are to be run.
func TestThePublishedTasks(t *testing.T) {
	t.Parallel()
	dir := published(t)
	const pages = `{"workflow": {"url": "https://gauntletbench-graph.vercel.app/workflows"}, "scene": {"url": "https://3d-clone-rouge.vercel.app/"}, "video": {"url": "https://voidcut.vercel.app/"}, "circuit": {"url": "https://gauntletbench-circuit.up.railway.app/circuitjs.html?startCircuit=blank.txt"}, "flight": {"url": "https://gauntletbench-flight-analyser-app.hf.space/"}}`
	for name, tt := range map[string]struct {
		o            task.Options
		valid, notes int
	}{
		"described":           {task.Options{Describe: true}, 15, 16}, // a comma too many is the last note
		"to be run, no pages": {task.Options{}, 0, 1},
		"to be run":           {options(pages), 15, 1},
	} {
		list, err := task.List(t.Context(), Format{}, dir, task.ListOptions{Options: tt.o})
		if err != nil {
			t.Fatal(err)
		}
		valid, notes, said := 0, 0, ""
		for i := range list.Items {
			it := &list.Items[i]
			if it.Task != nil {
				valid++
			}
			for _, p := range it.Problems {
				said += p.String() + "\n"
				if p.Severity == task.Warning {
					notes++
				}
			}
		}
		if len(list.Items) != 15 || valid != tt.valid || notes != tt.notes {
			t.Errorf("%s: %d of %d valid, %d notes\n%s", name, valid, len(list.Items), notes, said)
		}
		if name == "described" && (!strings.Contains(said, "No page is known yet") || strings.Count(said, "comma too many") != 1) {
			t.Error(said)
		}
	}
}
