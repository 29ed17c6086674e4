package numbers

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
)

// place is a task in a cell.
type place struct{ cell, task string }

// tried is what a run says of a task in a cell.
type tried struct {
	output.Tries

	digest, dir string   // of the task; of a trial that did not solve it
	ids         []string // of its trials
}

// Gate compares the tasks of a run with those of a baseline.
type Gate struct {
	output.Gate

	ids map[place]string // a trial of each task
}

// Gated says which tasks of a run got worse than in a baseline, cell by cell. A task
// got worse if the baseline always solved it and the run does not always, or if the
// baseline solved it once and the run never does.
func Gated(run, baseline *Run, o *Options) (*Gate, error) {
	g := &Gate{Gate: output.Gate{Run: run.Dir, Baseline: baseline.Dir, Tasks: []output.GateTask{}}, ids: map[place]string{}}
	now, reasons, err := tries(run, "", o)
	if err != nil {
		return nil, err
	}
	only := ""
	if len(run.Manifest.Cells) == 1 && len(baseline.Manifest.Cells) == 1 {
		only = cmp.Or(run.Manifest.Cells[0].Key, run.Manifest.Cells[0].Agent) // one cell each: they are compared whatever they are called
	}
	before, _, err := tries(baseline, only, o)
	if err != nil {
		return nil, err
	}
	if len(reasons) > 0 && !o.Force {
		return nil, Refusal(reasons)
	}
	g.Marks = reasons
	var changed, gone []string
	for _, p := range inOrder(before) {
		b, n := before[p], now[p]
		switch {
		case b.Measured == 0:
		case n == nil || n.Measured == 0:
			gone = append(gone, p.task)
		case b.digest != n.digest && !o.Force:
			changed = append(changed, p.task)
		default:
			t := output.GateTask{Cell: p.cell, Task: p.task, Before: b.Tries, Now: n.Tries, Trial: n.dir}
			always := b.Solved == b.Measured && n.Solved < n.Measured
			t.Worse = always || b.Solved > 0 && n.Solved == 0
			g.ids[p] = n.ids[0]
			g.Tasks = append(g.Tasks, t)
		}
	}
	if len(g.Tasks) == 0 {
		return nil, errors.New("both runs have no measured task with the same content in the same cell. Name cells with the same values on all axes, or compare tasks by name with --force")
	}
	for what, tasks := range map[string][]string{
		"were measured in the baseline and are not in the run": gone, "have another content than in the baseline (--force compares them)": changed,
	} {
		if len(tasks) > 0 {
			g.Notes = append(g.Notes, fmt.Sprintf("%s %s: %s", terminal.Count(len(tasks), "task", "tasks"), what, strings.Join(tasks, ", ")))
		}
	}
	slices.Sort(g.Notes)
	g.Count()
	return g, nil
}

// Count counts the tasks that got worse. One that most of its further trials solve did
// not.
func (g *Gate) Count() {
	g.Worse = 0
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if t.Again != nil {
			t.Worse = 2*t.Again.Solved <= t.Again.Measured
		}
		if t.Worse {
			g.Worse++
		}
	}
}

// Again returns the ids of a trial of each task that got worse.
func (g *Gate) Again() map[string]bool {
	ids := map[string]bool{}
	for _, t := range g.Tasks {
		if t.Worse {
			ids[g.ids[place{t.Cell, t.Task}]] = true
		}
	}
	return ids
}

// Confirm adds the further trials of a run that has the same trials.
func (g *Gate) Confirm(dir string, x *store.Index) {
	g.Confirmed = append(g.Confirmed, dir)
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if !t.Worse {
			continue
		}
		if t.Again == nil {
			t.Again = &output.Tries{}
		}
		if s := x.Trial(g.ids[place{t.Cell, t.Task}]); s != nil {
			add(t.Again, s)
		}
	}
}

func inOrder(of map[place]*tried) (all []place) {
	for p := range of {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Or(strings.Compare(a.cell, b.cell), strings.Compare(a.task, b.task)) })
	return all
}

// tries collects the trials of a run. key replaces that of its cells, if it is not
// empty. reasons are those not to print numbers.
func tries(r *Run, key string, o *Options) (of map[place]*tried, reasons []string, err error) {
	j, err := Join([]Run{*r})
	if err != nil {
		return nil, nil, err
	}
	of = map[place]*tried{}
	refused := o.Rules.Refused(j)
	for i := range j.Trials {
		t := &j.Trials[i]
		c := t.Of()
		if len(o.Cells) > 0 && !matches(o.Cells, c.Slug, c.Agent) {
			continue
		}
		reasons = append(reasons, refused[t.Cell]...)
		refused[t.Cell] = nil
		p := place{cmp.Or(key, c.Key, c.Agent), t.TaskName}
		if of[p] == nil {
			of[p] = &tried{digest: t.TaskDigest}
		}
		one := of[p]
		one.ids = append(one.ids, t.ID)
		if solved := one.Solved; add(&one.Tries, t.TrialState) && one.Solved == solved && one.dir == "" {
			one.dir = t.Dir
		}
	}
	return of, reasons, nil
}

// add counts a trial, if it was measured.
func add(t *output.Tries, s *store.TrialState) bool {
	a, measured := Attempt(s, "")
	if measured {
		t.Measured++
	}
	if a.Full {
		t.Solved++
	}
	return measured
}
