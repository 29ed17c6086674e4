package uniclaw

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
			asPublished(t, it.Task, config != "")
		}
		if valid != want || len(list.Items) != 405 {
			t.Errorf("with the settings %s: %d of %d tasks are valid, want %d", config, valid, len(list.Items), want)
		}
	}
}

// asPublished checks what a published task places and needs.
func asPublished(t *testing.T, got *task.Task, snapshot bool) {
	t.Helper()
	injection := got.HostPath(injectionOf(got.File))
	privacy, _ := os.ReadFile(filepath.Join(injection, filePrivacy)) // most have none
	declared := slices.Contains(strings.Fields(string(privacy)), snapshotMode)
	if vars := got.HostVars(); declared && snapshot && len(vars) > 0 {
		t.Errorf("%s needs %q", got.Name, vars)
	}
	placed := map[string]bool{}
	for i := range got.Resources {
		r := &got.Resources[i]
		for _, e := range r.Entries {
			placed[r.Place+"/"+e.Path] = true
		}
	}
	here, _ := filepath.Glob(filepath.Join(injection, dirSources, "*"+snapshots))
	for _, file := range here {
		if at := placeSources + "/" + filepath.Base(file); placed[at] != (snapshot || !declared) {
			t.Errorf("%s: %s is placed: %v", got.Name, at, placed[at])
		}
	}
	for line := range strings.Lines(got.Stages[0].Instruction[0].Text) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "- "+placeSkills+"/")
		if !ok {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(injection, dirSkills, name, "*"))
		if len(files) == 0 {
			t.Errorf("%s: the skill %s has no files", got.Name, name)
		}
		for _, file := range files {
			if at := placeSkills + "/" + name + "/" + filepath.Base(file); !placed[at] && !isDir(file) {
				t.Errorf("%s: %s is not placed", got.Name, at)
			}
		}
	}
}

func isDir(file string) bool {
	fi, err := os.Stat(file)
	return err == nil && fi.IsDir()
}
