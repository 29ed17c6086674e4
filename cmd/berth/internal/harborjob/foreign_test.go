package harborjob

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
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

// lacks fails the test for each file below dir that contains a text.
func lacks(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(file)
		if strings.Contains(string(b), text) {
			t.Errorf("%s was copied from outside of the job", file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A link on the way to a step's files, at any place, leads to nothing.
func TestLinksToFilesOfStepsAreNotFollowed(t *testing.T) {
	t.Parallel()
	const secret = "a file of this machine"
	for what, tt := range map[string]struct {
		link string // in the folder of the trial
		step string // renamed to this; empty: as it is
	}{
		"all steps":               {link: "steps"},
		"one step":                {link: "steps/one"},
		"its agent":               {link: "steps/one/agent"},
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
			lacks(t, r.Dir, secret)
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

// A cost is known only if that of every part is.
func TestUnknownCostsStayUnknown(t *testing.T) {
	t.Parallel()
	half := 0.5
	use := func(model string, cost *float64) record.Usage {
		return record.Usage{Role: "agent", Model: model, CostUSD: cost}
	}
	for what, all := range map[string][]record.Usage{
		"the first is unknown": {use("m", nil), use("m", &half)},
		"the last is unknown":  {use("m", &half), use("m", nil)},
	} {
		if a := usage(&record.Result{Usage: all}); a.Cost != nil || a.Models["m"].Cost != nil {
			t.Errorf("%s: %v, %v", what, a.Cost, a.Models["m"].Cost)
		}
	}
	a := usage(&record.Result{Usage: []record.Usage{use("m", &half), use("n", nil), use("m", &half)}})
	if m := a.Models["m"].Cost; a.Cost != nil || m == nil || *m != 1 || a.Models["n"].Cost != nil || half != 0.5 {
		t.Errorf("two models: %v, %v", a.Cost, a.Models)
	}
}

func TestUseBelowZeroIsNotKnown(t *testing.T) {
	t.Parallel()
	less, some := -5.0, int64(-7)
	for _, a := range []*agentResult{
		{Input: &some, Output: &some, Cost: &less}, {Models: map[string]modelUsage{"m": {Input: some, Output: some, Cost: &less}}},
	} {
		got := (&trialResult{Agent: a}).usage()
		if len(got) != 1 || got[0].InputTokens != 0 || got[0].OutputTokens != 0 || got[0].CostUSD != nil {
			t.Errorf("%+v", got)
		}
	}
}
