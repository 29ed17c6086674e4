package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/untrusted"
)

// Index is what is known of every trial of a run, made of its files.
type Index struct {
	Trials []*TrialState // in the order of the manifest
	// Torn and Damaged count lines of journals that could not be read.
	Torn, Damaged int
	Writers       []Writer
	Notes         []Entry // of kind Noted, oldest first

	byID map[string]*TrialState
}

// Writer is a process that wrote the run.
type Writer struct {
	Name  string
	Began Entry
	Ended bool // it said that it ended; else it lives, or was killed
}

// TrialState is one trial and its attempts.
type TrialState struct {
	*Trial
	Attempts []AttemptState // by number
}

// AttemptState is one attempt.
type AttemptState struct {
	Number int
	// Result is nil while the attempt is under way, and for ever when it was
	// not published: its process was killed.
	Result *Brief
	// Lost is what the attempt has used so far when it has no result: its
	// record of exchanges is written as they end.
	Lost Spend

	found bool // in its result.json, and in no journal
}

// Spent is what the attempts of each trial have used of models so far, by the id
// of the trial, also those that were killed.
func (x *Index) Spent() map[string]Spend {
	spent := map[string]Spend{}
	for _, t := range x.Trials {
		var sum Spend
		for i := range t.Attempts {
			sum.Add(t.Attempts[i].Spend())
		}
		if sum != (Spend{}) {
			spent[t.ID] = sum
		}
	}
	return spent
}

// Spend is what models were used in the attempt, with or without a result.
func (a *AttemptState) Spend() Spend {
	if a.Result != nil {
		return a.Result.Spend
	}
	return a.Lost
}

// Accepted is the attempt that the trial points at: the last one that settled
// it, or else the last one that was published; nil when there is none.
func (t *TrialState) Accepted() *AttemptState {
	var last *AttemptState
	for i := range t.Attempts {
		a := &t.Attempts[i]
		if a.Result != nil && (last == nil || a.Result.Outcome.Final() || !last.Result.Outcome.Final()) {
			last = a
		}
	}
	return last
}

// Outcome is the one outcome of the trial.
func (t *TrialState) Outcome() record.Outcome {
	if t.Invalid != "" {
		return record.TaskInvalid
	}
	if a := t.Accepted(); a != nil {
		return a.Result.Outcome
	}
	return record.NotRun
}

// Measured says whether the trial counts as measured.
func (t *TrialState) Measured() bool {
	a := t.Accepted()
	return t.Invalid == "" && a != nil && a.Result.Measured()
}

func (t *TrialState) next() int {
	if len(t.Attempts) == 0 {
		return 1
	}
	return t.Attempts[len(t.Attempts)-1].Number + 1
}

// ended notes the result of an attempt, known or not.
func (t *TrialState) ended(number int, b *Brief) {
	a := t.attempt(number)
	if a.Result == nil {
		a.Result = b
	}
}

// attempt finds the attempt of that number, or adds it.
func (t *TrialState) attempt(number int) *AttemptState {
	i, ok := slices.BinarySearchFunc(t.Attempts, number, func(a AttemptState, n int) int { return a.Number - n })
	if !ok {
		t.Attempts = slices.Insert(t.Attempts, i, AttemptState{Number: number})
	}
	return &t.Attempts[i]
}

// Trial finds a trial by its id; nil when there is none.
func (x *Index) Trial(id string) *TrialState { return x.byID[id] }

func newIndex(m *Manifest) *Index {
	x := &Index{Trials: make([]*TrialState, len(m.Trials)), byID: make(map[string]*TrialState, len(m.Trials))}
	for i := range m.Trials {
		x.Trials[i] = &TrialState{Trial: &m.Trials[i]}
		x.byID[m.Trials[i].ID] = x.Trials[i]
	}
	return x
}

func (x *Index) clone() *Index {
	c := *x
	c.Notes = slices.Clone(x.Notes)
	c.Trials = make([]*TrialState, len(x.Trials))
	c.byID = make(map[string]*TrialState, len(x.Trials))
	for i, t := range x.Trials {
		c.Trials[i] = &TrialState{Trial: t.Trial, Attempts: slices.Clone(t.Attempts)}
		c.byID[t.ID] = c.Trials[i]
	}
	return &c
}

// Read reads the plan of the run in dir and what became of it, without writing
// anything. It may be called while the run is going on.
func Read(dir string) (*Manifest, *Index, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, nil, err
	}
	x, err := readIndex(dir, m)
	return m, x, err
}

func readIndex(dir string, m *Manifest) (*Index, error) {
	x := newIndex(m)
	js, err := readJournals(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: journals: %w", dir, err)
	}
	for i := range js {
		x.take(&js[i])
	}
	if err = x.walk(dir); err != nil {
		return nil, fmt.Errorf("%s: attempts: %w", dir, err)
	}
	return x, nil
}

// maxAttempts is the highest number of an attempt that is believed.
const maxAttempts = 10_000

func (x *Index) take(j *Journal) {
	x.Torn += j.Torn
	x.Damaged += j.Damaged
	w := Writer{Name: j.Writer}
	for i := range j.Entries {
		e := &j.Entries[i]
		t := x.byID[e.Trial]
		switch {
		case e.Kind == WriterBegan:
			w.Began = *e
		case e.Kind == WriterEnded:
			w.Ended = true
		case e.Kind == Noted:
			x.Notes = append(x.Notes, *e)
		case t == nil || e.Attempt < 1 || e.Attempt > maxAttempts:
			x.Damaged++
		case e.Kind == AttemptEnded && e.Brief != nil:
			t.ended(e.Attempt, e.Brief)
		default:
			t.attempt(e.Attempt)
		}
	}
	x.Writers = append(x.Writers, w)
}

// walk looks for attempts that no journal speaks of, or not of their end.
// Numbers follow one another, so that one question a trial is enough.
func (x *Index) walk(dir string) error {
	for _, t := range x.Trials {
		folder := filepath.Join(dir, TrialsDir, filepath.FromSlash(t.Dir))
		for n := t.next(); ; n++ {
			_, err := os.Lstat(filepath.Join(folder, AttemptDir(n)))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
				x.Damaged++ // no berth made a folder there: the others are still read
				break
			}
			if err != nil {
				return err
			}
			t.attempt(n)
		}
		for i := range t.Attempts {
			if a := &t.Attempts[i]; a.Result == nil {
				x.look(t, a, folder)
			}
		}
	}
	return nil
}

// look finds the result of an attempt that was published and not written down.
func (x *Index) look(t *TrialState, a *AttemptState, folder string) {
	dir := filepath.Join(folder, AttemptDir(a.Number))
	if fi, err := os.Lstat(dir); err == nil && !fi.IsDir() {
		x.Damaged++ // a link leads to what is no attempt of this run
		return
	}
	r, err := ReadResult(dir)
	if err == nil && r.Trial == t.ID {
		a.Result, a.found = BriefOf(r), true
		return
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.Damaged++ // published whole, changed since: it is not believed
	}
	if a.Lost, err = exchanged(dir); err != nil {
		x.Damaged++
	}
}

// maxResult is how many bytes a result.json may have. The texts of one verdict
// have 4 MiB at most, the findings of an attempt as much.
const maxResult = 256 << 20

// ReadResult reads result.json of the attempt in dir.
func ReadResult(dir string) (*record.Result, error) {
	b, err := untrusted.Read(dir, record.ResultFile, maxResult)
	if err != nil {
		return nil, err
	}
	r := &record.Result{}
	if err = json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, record.ResultFile), err)
	}
	return r, nil
}
