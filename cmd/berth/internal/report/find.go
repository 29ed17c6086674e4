package report

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/suggest"
)

// RunsDir is the default folder of runs.
const RunsDir = "runs"

// Runs returns the run folders in dir, oldest first.
func Runs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	type made struct {
		dir string
		at  time.Time
	}
	var runs []made
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		fi, err := os.Stat(filepath.Join(path, store.ManifestFile))
		if err != nil {
			continue
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		runs = append(runs, made{abs, fi.ModTime()})
	}
	slices.SortFunc(runs, func(a, b made) int { return a.at.Compare(b.at) })
	dirs := make([]string, len(runs))
	for i := range runs {
		dirs[i] = runs[i].dir
	}
	return dirs, nil
}

// FindRun returns the folder of a run, given as a path, a name below ./runs, or
// last.
func FindRun(name string) (string, error) {
	if name == "last" {
		runs, err := Runs(RunsDir)
		if err != nil {
			return "", fmt.Errorf("look for runs: %w", err)
		}
		if len(runs) == 0 {
			return "", fmt.Errorf("no run in ./%s yet", RunsDir)
		}
		return runs[len(runs)-1], nil
	}
	for _, dir := range []string{name, filepath.Join(RunsDir, name)} {
		if _, err := os.Stat(filepath.Join(dir, store.ManifestFile)); err == nil {
			return filepath.Abs(dir)
		}
	}
	if fi, err := os.Stat(name); err == nil && fi.IsDir() {
		return "", fmt.Errorf("%s: %w: it has no %s", name, store.ErrNoRun, store.ManifestFile)
	}
	if runs, err := Runs(RunsDir); err == nil {
		byName := map[string]string{} // the newest of an experiment under its name alone, too
		for _, dir := range runs {
			base := filepath.Base(dir)
			byName[base] = base
			if i := strings.LastIndexByte(base, '-'); i > 0 {
				byName[base[:i]] = base
			}
		}
		if best := suggest.Word(name, slices.Sorted(maps.Keys(byName))); best != "" {
			return "", fmt.Errorf("no run %q: did you mean %q?", name, byName[best])
		}
	}
	return "", fmt.Errorf("no run %q: expected a folder, a name below ./%s, or last. berth show lists the runs", name, RunsDir)
}

// FindTrial finds a trial by the beginning of its id or folder, or by its task,
// which may be named without its organization.
func FindTrial(x *store.Index, name string) (*store.TrialState, error) {
	var found, byTask []*store.TrialState
	for _, t := range x.Trials {
		switch {
		case t.ID == name || t.Dir == name:
			return t, nil
		case strings.HasPrefix(t.ID, name) || strings.HasPrefix(t.Dir, name):
			found = append(found, t)
		}
		if t.Task == name || path.Base(t.Task) == name {
			byTask = append(byTask, t)
		}
	}
	if len(byTask) > 0 {
		found = byTask
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		var tasks []string
		for _, t := range x.Trials {
			tasks = append(tasks, t.Task, path.Base(t.Task))
		}
		if best := suggest.Word(name, tasks); best != "" {
			return nil, fmt.Errorf("no trial %q in this run: did you mean %q?", name, best)
		}
		return nil, fmt.Errorf("no trial %q in this run: `berth show RUN` lists the trials", name)
	}
	var names []string
	for _, t := range found[:min(len(found), 10)] {
		names = append(names, Short(t.ID, 12)+"  "+t.Dir)
	}
	return nil, fmt.Errorf("%q matches %d trials: use the beginning of an id\n  %s", name, len(found), strings.Join(names, "\n  "))
}

// Display returns a path as the user would write it in the current folder.
func Display(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	rel, err := filepath.Rel(wd, path)
	if err != nil || len(rel) > len(path) {
		return path
	}
	return rel
}

// Short returns the beginning of a trial's id. A foreign manifest may contain
// shorter ids.
func Short(id string, n int) string { return id[:min(n, len(id))] }
