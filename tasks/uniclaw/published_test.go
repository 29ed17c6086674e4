package uniclaw

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// published is the folder with the published tasks, as data.
func published(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../shared/published/uniclawbench")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = os.Stat(dir); err != nil {
		t.Skipf("the published tasks are not here: %v", err)
	}
	return dir
}

// All published tasks are valid but for those that want programs to run on the host.
// With the copies of live sites most of these are valid, too, without a variable of
// the host.
func TestThePublishedTasks(t *testing.T) {
	t.Parallel()
	dir := published(t)
	for config, want := range map[string]int{"": 405 - 16, `{"snapshot": true}`: 405 - 16 + 12} {
		list, err := task.List(t.Context(), Format{}, dir, task.ListOptions{Options: task.Options{Config: json.RawMessage(config)}})
		if err != nil {
			t.Fatal(err)
		}
		valid := 0
		for i := range list.Items {
			it := &list.Items[i]
			if it.Task == nil {
				if all := fmt.Sprint(it.Problems); !strings.Contains(all, "Programs for the host are refused. The task wants ops/") {
					t.Errorf("%s: %s", it.Path, all)
				}
				continue
			}
			valid++
		}
		if valid != want || len(list.Items) != 405 {
			t.Errorf("with the settings %s: %d of %d tasks are valid, want %d", config, valid, len(list.Items), want)
		}
	}
}
