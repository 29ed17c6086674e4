package harborjob

import (
	"path"
	"path/filepath"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// maxName is the length in bytes of the longest path that the system opens.
const maxName = 4096

// stepDir returns the slash-separated folder of a step below that of its trial. The
// step "" is the trial itself.
func stepDir(step string) string {
	if step == "" {
		return ""
	}
	return path.Join("steps", step)
}

// steps returns the names of the steps of a trial that can be folders, each once.
func (t *trialResult) steps() (names []string) {
	seen := map[string]bool{}
	for i := range t.Steps {
		name := t.Steps[i].Name
		if name == "" || len(name) > maxName || !filepath.IsLocal(filepath.FromSlash(name)) {
			continue
		}
		if name = path.Clean(name); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// take copies the files of a trial and of its steps to the places that they have in
// an attempt. All files are opened by their name below the trial's folder: a link
// anywhere on the way, such as one called "steps", could lead to files of this
// machine that are not part of the job.
func take(a *store.Attempt, trial string, steps []string, c *copier) error {
	names, more, err := untrusted.List(trial, maxFiles)
	if err != nil {
		return err
	}
	if more {
		c.note("not all of its files were copied")
	}
	p := placesOf(steps)
	for _, name := range names {
		if p.folders[name] {
			c.note("%s was not copied: it is a link or a file, not a folder", name)
			continue
		}
		to := p.of(name)
		if to == "" {
			continue
		}
		if err = c.file(trial, name, filepath.Join(a.Dir(), filepath.FromSlash(to))); err != nil {
			return err
		}
	}
	for _, step := range append([]string{""}, steps...) {
		_, there := slices.BinarySearch(names, path.Join(stepDir(step), agentDir, record.TrajectoryFile))
		if !there && !more {
			continue
		}
		if err = trajectories(a, trial, step, c); err != nil {
			return err
		}
	}
	return nil
}

// places says where the files of a trial are in an attempt.
type places struct {
	into    map[string]string // a folder of the trial: the folder of the attempt
	folders map[string]bool   // the folders of into, and those that they are in
}

func placesOf(steps []string) *places {
	p := &places{into: map[string]string{}, folders: map[string]bool{}}
	for _, step := range append([]string{""}, steps...) {
		for _, sub := range []string{agentDir, verifierDir, artifactsDir} {
			from := path.Join(stepDir(step), sub)
			p.into[from] = path.Join(sub, step)
			for dir := from; dir != "." && !p.folders[dir]; dir = path.Dir(dir) {
				p.folders[dir] = true
			}
		}
	}
	return p
}

// of returns the name of a file of the trial in the attempt; empty if it is not
// copied.
func (p *places) of(name string) string {
	for i, c := range name {
		if c != '/' {
			continue
		}
		if into, ok := p.into[name[:i]]; ok {
			return path.Join(into, name[i+1:])
		}
	}
	return ""
}
