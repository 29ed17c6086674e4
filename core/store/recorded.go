package store

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Recorded is a run whose attempts are replayed.
type Recorded struct {
	dir      string
	manifest *Manifest
	index    *Index
}

// OpenRecorded opens the run in a folder.
func OpenRecorded(dir string) (*Recorded, error) {
	m, index, err := Read(dir)
	if err != nil {
		return nil, err
	}
	return &Recorded{dir, m, index}, nil
}

// Attempt returns the folder of the accepted attempt of a trial: the same
// trial, or the only one of the same task and repetition, or of these the only
// one whose cell has the same name. Another time limit or budget makes another
// trial, and is not a reason not to replay.
func (r *Recorded) Attempt(trial, cell, task string, repetition int) (string, error) {
	t := r.index.Trial(trial)
	if t == nil {
		var all, same []*TrialState
		for _, other := range r.index.Trials {
			if other.Task != task || other.Repetition != repetition {
				continue
			}
			all = append(all, other)
			if r.manifest.Cells[other.Cell].Key == cell {
				same = append(same, other)
			}
		}
		switch {
		case len(all) == 0:
			return "", fmt.Errorf("%s has no trial of task %q and repetition %d", r.dir, task, repetition)
		case len(all) == 1:
			t = all[0]
		case len(same) == 1:
			t = same[0]
		default:
			return "", fmt.Errorf("%s has %d trials of task %q and repetition %d, and none that is this one, or the only one of its cell (%s): replay the experiment that it ran",
				r.dir, len(all), task, repetition, cell)
		}
	}
	a := t.Accepted()
	if a == nil {
		return "", fmt.Errorf("the trial of task %q in %s was not finished", task, r.dir)
	}
	return filepath.Join(r.dir, TrialsDir, filepath.FromSlash(t.Dir), "attempt-"+strconv.Itoa(a.Number)), nil
}
