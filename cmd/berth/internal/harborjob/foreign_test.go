package harborjob

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// trialOf returns the folder of the job's trial of a task.
func trialOf(t *testing.T, job, task string) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(job, task+"__*"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	return dirs[0]
}

// A link on the way to a step's files, at any place, leads to nothing.
func TestLinksToFilesOfStepsAreNotFollowed(t *testing.T) {
	t.Parallel()
	const secret = "a file of this machine"
	for what, tt := range map[string]struct {
		link string // in the folder of the trial
		step string // renamed to this; empty: as it is
	}{
		"all steps":              {link: "steps"},
		"one step":               {link: "steps/one"},
		"its agent":              {link: "steps/one/agent"},
		"a part of a step's name": {link: "steps/a", step: "a/one"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := job(t)
			two, outside := trialOf(t, dir, "two"), t.TempDir()
			for _, sub := range []string{"", "one/", "agent/", "one/agent/", "verifier/", "one/verifier/"} {
				write(t, filepath.Join(outside, filepath.FromSlash(sub), "key.txt"), secret)
			}
			if tt.step != "" {
				file := filepath.Join(two, resultFile)
				b, err := os.ReadFile(file)
				if err != nil || !strings.Contains(string(b), `"step_name": "one"`) {
					t.Fatal("no step one in the result", err)
				}
				write(t, file, strings.ReplaceAll(string(b), `"step_name": "one"`, `"step_name": "`+tt.step+`"`))
			}
			link := filepath.Join(two, filepath.FromSlash(tt.link))
			if err := errors.Join(os.RemoveAll(link), os.Symlink(outside, link)); err != nil {
				t.Fatal(err)
			}
			done, r := read(t, dir)
			if notes := strings.Join(done.Notes, "\n"); !strings.Contains(notes, tt.link+" was not copied: it is a link") {
				t.Errorf("notes: %s", notes)
			}
			err := filepath.WalkDir(r.Dir, func(file string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				b, err := os.ReadFile(file)
				if strings.Contains(string(b), secret) {
					t.Errorf("%s was copied from outside of the job", file)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// The files of steps are in folders of their own, also those of a step whose name has
// a slash.
func TestFilesOfSteps(t *testing.T) {
	t.Parallel()
	dir := job(t)
	write(t, filepath.Join(trialOf(t, dir, "two"), "steps", "one", "agent", "deep", "log.txt"), "step one")
	_, r := read(t, dir)
	for _, name := range []string{"verifier/one/reward.txt", "verifier/two/test-stdout.txt", "agent/one/deep/log.txt"} {
		if files, err := filepath.Glob(filepath.Join(r.Dir, "trials", "*", "*", filepath.FromSlash(name))); err != nil || len(files) != 1 {
			t.Errorf("%s: %q, %v", name, files, err)
		}
	}
}
