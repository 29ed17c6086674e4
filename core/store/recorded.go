package store

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Recorded is a run whose attempts are replayed.
type Recorded struct {
	dir   string
	index *Index
}

// OpenRecorded opens the run in a folder.
func OpenRecorded(dir string) (*Recorded, error) {
	_, index, err := Read(dir)
	if err != nil {
		return nil, err
	}
	return &Recorded{dir, index}, nil
}

// Attempt returns the folder of the accepted attempt of a trial: the same
// trial, or the only one of the same task and repetition.
func (r *Recorded) Attempt(trial, task string, repetition int) (string, error) {
	t := r.index.Trial(trial)
	if t == nil {
		for i, other := range r.index.Trials {
			if other.Task != task || other.Repetition != repetition {
				continue
			}
			if t != nil {
				return "", fmt.Errorf("%s has several trials of task %q and repetition %d, and none that is this one: replay the experiment that it ran", r.dir, task, repetition)
			}
			t = r.index.Trials[i]
		}
	}
	if t == nil {
		return "", fmt.Errorf("%s has no trial of task %q and repetition %d", r.dir, task, repetition)
	}
	a := t.Accepted()
	if a == nil {
		return "", fmt.Errorf("the trial of task %q in %s was not finished", task, r.dir)
	}
	return filepath.Join(r.dir, TrialsDir, filepath.FromSlash(t.Dir), "attempt-"+strconv.Itoa(a.Number)), nil
}
