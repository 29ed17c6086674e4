package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Index is the state of every trial of a run, read from its files.
type Index struct {
	Trials []*TrialState // in the order of the manifest
	// Torn and Damaged count lines of journals that could not be read.
	Torn, Damaged int
	Writers       []Writer
	Notes         []Entry // of kind Noted, oldest first

	byID    map[string]*TrialState
	strange int // entries of journals about trials that are not in the plan
}

// Writer is a process that wrote the run.
type Writer struct {
	Name  string
	Began Entry
	Ended bool // it recorded its end; otherwise it is alive or was killed

	alive bool // when the journal was read, as far as it can be seen from this machine
}

// TrialState is one trial and its attempts.
type TrialState struct {
	*Trial
	Attempts []AttemptState // by number
}

// AttemptState is one attempt.
type AttemptState struct {
	Number int
	// Began is when the attempt began, and By the name of the writer that began it.
	// Both are zero if no journal has its beginning.
	Began time.Time
	By    string
	// Result is nil while the attempt is in progress, and remains nil when its
	// process was killed before it was published.
	Result *Brief
	// Lost is what an attempt without a result has used so far: its exchanges
	// are recorded as they end.
	Lost Spend

	found bool // in its result.json, and in no journal
}

// Spent returns the use of models by the attempts of each trial so far, by
// trial id, including attempts that were killed.
func (x *Index) Spent() map[string]Spend {
	spent := map[string]Spend{}
	for _, t := range x.Trials {
		sum, again := t.Spend()
		if sum.Add(again); sum != (Spend{}) {
			spent[t.ID] = sum
		}
	}
	return spent
}

// Spend returns the use of models in the attempt, with or without a result.
func (a *AttemptState) Spend() Spend {
	if a.Result != nil {
		return a.Result.Spend
	}
	return a.Lost
}

// Accepted returns the attempt that counts for the trial: the last one that
// settled it, or else the last one that was published; nil when there is none. An
// attempt that verified an earlier one again counts if it is measured.
func (t *TrialState) Accepted() *AttemptState {
	var last *AttemptState
	for i := range t.Attempts {
		a := &t.Attempts[i]
		if a.Result != nil && last != nil && a.Result.Origin > 0 && !a.Result.Measured() {
			continue
		}
		if a.Result != nil && (last == nil || a.Result.Outcome.Final() || !last.Result.Outcome.Final()) {
			last = a
		}
	}
	return last
}

// Work returns the attempt that has the work which a judged: a itself, or the one
// that it verified again.
func (t *TrialState) Work(a *AttemptState) *AttemptState {
	if a.Result != nil && a.Result.Origin > 0 {
		for i := range t.Attempts {
			if t.Attempts[i].Number == a.Result.Origin {
				return &t.Attempts[i]
			}
		}
	}
	return a
}

// Spend returns the use of models in the attempts of the trial, and apart from it
// that of verifying again, which is about no further work.
func (t *TrialState) Spend() (work, again Spend) {
	for i := range t.Attempts {
		if a := &t.Attempts[i]; t.Work(a) == a {
			work.Add(a.Spend())
		} else {
			again.Add(a.Spend())
		}
	}
	return work, again
}

// Outcome returns the one outcome of the trial.
func (t *TrialState) Outcome() record.Outcome {
	if t.Invalid != "" {
		return record.TaskInvalid
	}
	if a := t.Accepted(); a != nil {
		return a.Result.Outcome
	}
	return record.NotRun
}

// Measured reports whether the trial counts as measured.
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

// Writing returns the process that wrote the run when the index was read, as far as
// it can be seen from this machine; nil if there is none. A process on another
// machine counts until it has recorded its end.
func (x *Index) Writing() *Entry {
	for i := range x.Writers {
		if w := &x.Writers[i]; w.Writes() {
			return &w.Began
		}
	}
	return nil
}

// Writes reports whether the process wrote the run when the index was read, as far
// as it can be seen from this machine.
func (w *Writer) Writes() bool { return w.alive }

// UnderWay reports whether the last attempt of a trial was in progress when the
// index was read: it has no result, and the process that began it writes the run.
func (x *Index) UnderWay(t *TrialState) bool {
	if len(t.Attempts) == 0 {
		return false
	}
	a := &t.Attempts[len(t.Attempts)-1]
	return a.Result == nil && slices.ContainsFunc(x.Writers, func(w Writer) bool { return w.alive && w.Name == a.By })
}

// ended records the end of an attempt, with its result if known.
func (t *TrialState) ended(number int, b *Brief) {
	a := t.attempt(number)
	if a.Result == nil {
		a.Result = b
	}
}

// find returns the place of the attempt with that number, and whether it is there.
func (t *TrialState) find(number int) (int, bool) {
	return slices.BinarySearchFunc(t.Attempts, number, func(a AttemptState, n int) int { return a.Number - n })
}

// attempt returns the attempt with that number, adding it if needed.
func (t *TrialState) attempt(number int) *AttemptState {
	i, ok := t.find(number)
	if !ok {
		t.Attempts = slices.Insert(t.Attempts, i, AttemptState{Number: number})
	}
	return &t.Attempts[i]
}

// Trial returns the trial with that id; nil when there is none.
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

// Read reads the plan and the state of the run in dir, without writing
// anything. It may be called while the run is in progress.
func Read(dir string) (*Manifest, *Index, error) {
	for tries := 0; ; tries++ {
		m, err := ReadManifest(dir)
		if err != nil {
			return nil, nil, err
		}
		x, err := readIndex(dir, m)
		if err != nil || x.strange == 0 || tries == 2 {
			return m, x, err
		}
		// Attempts of trials that are not in the plan: the run may just have been
		// extended.
	}
}

func readIndex(dir string, m *Manifest) (*Index, error) {
	js, err := ReadJournals(dir)
	if err != nil {
		return nil, err
	}
	x := newIndex(m)
	for i := range js {
		x.take(&js[i])
	}
	if err := x.walk(dir); err != nil {
		return nil, fmt.Errorf("%s: attempts: %w", dir, err)
	}
	return x, nil
}

// maxAttempts is the highest attempt number that is accepted as valid.
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
		case e.Kind == Extended: // the manifest says with what
		case t == nil || e.Attempt < 1 || e.Attempt > maxAttempts:
			x.Damaged++
			x.strange++
		case e.Kind == AttemptEnded && e.Brief != nil:
			t.ended(e.Attempt, e.Brief)
		case e.Kind == AttemptBegan:
			a := t.attempt(e.Attempt)
			a.Began, a.By = e.Time, j.Writer
		default:
			t.attempt(e.Attempt)
		}
	}
	w.alive = !w.Ended && w.Began.Process != nil && w.Began.Process.State() != node.Dead
	x.Writers = append(x.Writers, w)
}

// walk looks for attempts that no journal mentions, or whose end no journal
// mentions. Attempts are numbered without gaps, so one lookup per trial is
// enough, and one for each attempt that is missing before others: its process was
// killed before it could write the journal.
func (x *Index) walk(dir string) error {
	for _, t := range x.Trials {
		folder := filepath.Join(dir, TrialsDir, filepath.FromSlash(t.Dir))
		for n := 1; ; n++ {
			if _, known := t.find(n); known {
				continue
			}
			_, err := os.Lstat(filepath.Join(folder, AttemptDir(n)))
			if errors.Is(err, fs.ErrNotExist) && n < t.next() {
				continue
			}
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
				x.Damaged++ // not made by this program; the other trials are still read
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

// look finds the result of an attempt that was published but is in no journal.
func (x *Index) look(t *TrialState, a *AttemptState, folder string) {
	dir := filepath.Join(folder, AttemptDir(a.Number))
	if fi, err := os.Lstat(dir); err == nil && !fi.IsDir() {
		x.Damaged++ // a link may lead to something that is not an attempt of this run
		return
	}
	r, err := ReadResult(dir)
	if err == nil && r.Trial == t.ID {
		a.Result, a.found = BriefOf(r), true
		return
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.Damaged++ // changed since it was published, so it is not trusted
	}
	if a.Lost, err = Exchanged(dir); err != nil {
		x.Damaged++
	}
}

// maxResult is the largest size of a result.json in bytes. The texts of one
// verdict have at most 4 MiB, and so do the findings of an attempt.
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
