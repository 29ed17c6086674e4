package numbers

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/stats"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Run is a run as it was read.
type Run struct {
	Dir      string
	Manifest *store.Manifest
	Index    *store.Index
}

// Name returns the name of the run's folder.
func (r *Run) Name() string { return filepath.Base(r.Dir) }

// Read reads runs. Fails if one is given twice, also as a copy in another folder.
func Read(dirs ...string) ([]Run, error) {
	var runs []Run
	for _, dir := range dirs {
		m, x, err := store.Read(dir)
		if err != nil {
			return nil, err
		}
		for i := range runs {
			if runs[i].Manifest.Header.Run == m.Header.Run {
				return nil, fmt.Errorf("%s and %s are the same run: name it once", runs[i].Dir, dir)
			}
		}
		runs = append(runs, Run{Dir: dir, Manifest: m, Index: x})
	}
	return runs, nil
}

// Cell is a cell of several runs that are taken as one.
type Cell struct {
	Name string
	Key  string
	Runs []*Run // that have it

	identity map[string][]byte // by dataset
}

// Trial is a trial of one of several runs that are taken as one.
type Trial struct {
	*store.TrialState
	Run  *Run
	Cell int // of Joined.Cells
	// TaskName is the name of the task, with what is needed to tell it from others
	// of the name: its dataset or the beginning of its digest.
	TaskName string
}

// Of returns the cell of the trial in its own run.
func (t *Trial) Of() *store.Cell { return &t.Run.Manifest.Cells[t.TrialState.Cell] }

// Joined are several runs that are taken as one.
type Joined struct {
	Runs   []Run
	Cells  []Cell
	Trials []Trial
	Notes  []string // what to know about the runs
}

// Join takes several runs as one. Cells with the same values on all axes are one
// cell if nothing that could change a result differs. Tasks of one name with
// another content are two tasks. Fails if two runs have the same trial.
func Join(runs []Run) (*Joined, error) {
	j := &Joined{Runs: runs}
	ids, named := map[string]*Run{}, j.taskNames()
	for i := range runs {
		r := &runs[i]
		place := make([]int, len(r.Manifest.Cells))
		for c := range r.Manifest.Cells {
			place[c] = j.cell(r, &r.Manifest.Cells[c])
		}
		for _, t := range r.Index.Trials {
			if before := ids[t.ID]; before != nil {
				return nil, fmt.Errorf("%s and %s both have the trial of task %s in cell %s, repetition %d: runs of the same trials cannot be taken as one. "+
					"Show one of them, compare them with berth compare %s %s, or add repetitions to one",
					before.Name(), r.Name(), t.Task, cmp.Or(r.Manifest.Cells[t.Cell].Key, r.Manifest.Cells[t.Cell].Agent), t.Repetition, report.Display(before.Dir), report.Display(r.Dir))
			}
			ids[t.ID] = r
			j.Trials = append(j.Trials, Trial{TrialState: t, Run: r, Cell: place[t.Cell], TaskName: named(r, t)})
		}
		j.Notes = append(j.Notes, r.notes()...)
	}
	return j, nil
}

// Choose returns the runs with the trials for which an expression of --select is true,
// and a note that says so: a success rate over trials that were chosen by their result
// says nothing about an agent. An empty expression chooses all.
func (j *Joined) Choose(expression string) (*Joined, error) {
	if expression == "" {
		return j, nil
	}
	manifests := make([]*store.Manifest, len(j.Runs))
	for i := range j.Runs {
		manifests[i] = j.Runs[i].Manifest
	}
	e, err := selection.Compile(expression, manifests...)
	if err != nil {
		return nil, err
	}
	for i := range j.Runs {
		if err = e.Notes(manifests[i], j.Runs[i].Dir); err != nil {
			return nil, err
		}
	}
	chosen := *j
	chosen.Trials = nil
	for i := range j.Trials {
		t := &j.Trials[i]
		switch yes, err := e.Matches(&selection.Attempt{Manifest: t.Run.Manifest, Trial: t.TrialState, State: t.Accepted()}); {
		case err != nil:
			return nil, err
		case yes:
			chosen.Trials = append(chosen.Trials, *t)
		}
	}
	chosen.Notes = append(slices.Clone(j.Notes), fmt.Sprintf("the numbers are those of the %d of %s that %s chooses",
		len(chosen.Trials), terminal.Count(len(j.Trials), "trial", "trials"), selection.Flag))
	return &chosen, nil
}

// notes say what to know about the numbers of the run: which records could not be
// read, and what people did to it.
func (r *Run) notes() (notes []string) {
	if n := r.Index.Torn + r.Index.Damaged; n > 0 {
		notes = append(notes, fmt.Sprintf("%s: %s could not be read, so that trials may be missing or have another attempt%s",
			r.Name(), terminal.Count(n, "record", "records"), resume(". Run ", []*Run{r}, "")))
	}
	for _, what := range summary.Interventions(r.Index) {
		notes = append(notes, r.Name()+", since it was planned: "+what)
	}
	return notes
}

// cell returns the place of a cell of a run, adding it if it is a new one.
func (j *Joined) cell(r *Run, c *store.Cell) int {
	name, alike := cmp.Or(c.Slug, c.Agent), false
	for i := range j.Cells {
		known := &j.Cells[i]
		if known.Key != c.Key {
			continue
		}
		alike = true
		if known.same(c) {
			known.Runs = append(known.Runs, r)
			for dataset, id := range c.Identity {
				known.identity[dataset] = id
			}
			return i
		}
	}
	if alike { // the same values on the axes, but something else differs
		name = r.Name() + "/" + name
		j.Notes = append(j.Notes, fmt.Sprintf("cell %s has the name of another one and differs from it in what could change results: it has separate rows", name))
	}
	identity := map[string][]byte{}
	for dataset, id := range c.Identity {
		identity[dataset] = id
	}
	j.Cells = append(j.Cells, Cell{Name: name, Key: c.Key, Runs: []*Run{r}, identity: identity})
	return len(j.Cells) - 1
}

// same reports whether nothing differs that could change a result, on the
// datasets that both have.
func (c *Cell) same(o *store.Cell) bool {
	for dataset, id := range o.Identity {
		if mine, ok := c.identity[dataset]; ok && !bytes.Equal(mine, id) {
			return false
		}
	}
	return true
}

// taskNames returns how the task of a trial is named, and notes tasks of one name
// with several contents.
func (j *Joined) taskNames() func(*Run, *store.TrialState) string {
	digests, shared := map[string]map[string]bool{}, map[*Run]map[string]bool{}
	plain := func(r *Run, t *store.TrialState) string {
		if shared[r][t.Task] {
			return t.Dataset + ": " + t.Task
		}
		return t.Task
	}
	several := 0
	for i := range j.Runs {
		r := &j.Runs[i]
		shared[r] = summary.SharedNames(r.Manifest)
		for _, t := range r.Index.Trials {
			name := plain(r, t)
			if digests[name] == nil {
				digests[name] = map[string]bool{}
			}
			if before := len(digests[name]); t.TaskDigest != "" {
				digests[name][t.TaskDigest] = true
				if before == 1 && len(digests[name]) == 2 {
					several++
				}
			}
		}
	}
	if several > 0 {
		j.Notes = append(j.Notes, fmt.Sprintf("%s another content in another run: each content counts as a separate task", terminal.Count(several, "task has", "tasks have")))
	}
	return func(r *Run, t *store.TrialState) string {
		name := plain(r, t)
		if digest := strings.TrimPrefix(t.TaskDigest, "sha256:"); len(digests[name]) > 1 && len(digest) > 8 {
			name += " (" + digest[:8] + ")"
		}
		return name
	}
}

// Attempt returns the measured attempt of a trial for package stats; false if the
// trial was not measured.
func Attempt(t *store.TrialState, task string) (stats.Attempt, bool) {
	if !t.Measured() {
		return stats.Attempt{}, false
	}
	r := t.Accepted().Result
	a := stats.Attempt{Task: task, Repetition: t.Repetition, Full: r.Outcome == record.Passed}
	switch {
	case r.Score != nil:
		a.Score = *r.Score
		a.Full = a.Full || r.Outcome == record.Scored && a.Score >= 1
	case a.Full:
		a.Score = 1
	}
	return a, true
}
