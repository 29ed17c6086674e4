package plan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
)

// tasks loads every dataset that a cell names, once.
func (m *maker) tasks(ctx context.Context) error {
	sources := map[string]string{} // label to everything that decides which tasks it has
	for i := range m.plan.Experiment.Cells {
		for _, d := range m.plan.Experiment.Cells[i].Datasets {
			source, err := json.Marshal([]any{d.Format, d.Path, d.Include, d.Exclude, d.Limit, d.Lenient, d.AllowEnv, d.Config})
			if err != nil {
				return err
			}
			if before, ok := sources[d.Label]; ok {
				if before != string(source) {
					return fmt.Errorf("dataset %q holds other tasks in cell %s than in the cells before: it may depend on the matrix in verify and success only",
						d.Label, m.plan.Experiment.Cells[i].Key)
				}
				continue
			}
			sources[d.Label] = string(source)
			if err = m.load(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *maker) load(ctx context.Context, d experiment.Dataset) error {
	at := slices.IndexFunc(m.in.Formats, func(f task.Format) bool { return f.Name() == d.Format })
	if at < 0 {
		return fmt.Errorf("dataset %q: no task format %q: choose from %s", d.Label, d.Format, formatNames(m.in.Formats))
	}
	o := m.in.Options
	o.Lenient, o.AllowEnv, o.Config = o.Lenient || d.Lenient, slices.Concat(o.AllowEnv, d.AllowEnv), d.Config.JSON()
	dataset, err := filepath.Abs(d.Path)
	if err != nil {
		return fmt.Errorf("dataset %q: %w", d.Label, err)
	}
	o.Dataset = dataset // also for tasks that are read again
	listing, err := task.List(ctx, m.in.Formats[at], d.Path, task.ListOptions{Options: o, Include: d.Include, Exclude: d.Exclude})
	if err != nil {
		return fmt.Errorf("dataset %q: %w", d.Label, err)
	}
	items := pick(listing.Items, d)
	if len(items) == 0 {
		m.problems.add(Problem{
			Severity: Error, Dataset: d.Label, Summary: "dataset has no tasks",
			Detail: fmt.Sprintf("Nothing at or below %s looks like a task of format %q.", d.Path, d.Format),
		})
	}
	if n := len(listing.Deep); n > 0 {
		m.problems.add(Problem{
			Severity: Warning, Dataset: d.Label, Summary: "folders that lie too deep were not looked into",
			Detail: fmt.Sprintf("%d of them, the first is %s.", n, listing.Deep[0]),
		})
	}
	if n := len(listing.Problems); n > 0 {
		m.problems.add(Problem{
			Severity: Warning, Dataset: d.Label, Summary: "tasks of the dataset are missing",
			Detail: fmt.Sprintf("%d of them, the first is %s", n, listing.Problems[0].String()),
		})
	}
	for _, what := range listing.Foreign(d.Path, m.in.Formats[at], m.in.Formats) {
		m.problems.add(Problem{
			Severity: Warning, Dataset: d.Label, Summary: "folder holds tasks of another format", Detail: what + ": write a dataset block for them.",
		})
	}
	var doubtful []string // valid tasks with warnings
	first := ""
	for i := range items {
		it := &items[i]
		t := Task{Dataset: d.Label, Path: it.Path, Name: it.Name(), Options: o, Task: it.Task, Problems: it.Problems}
		m.datasets[d.Label] = append(m.datasets[d.Label], len(m.plan.Tasks))
		m.plan.Tasks = append(m.plan.Tasks, t)
		switch {
		case it.Task == nil:
			m.problems.add(Problem{
				Severity: Warning, Dataset: d.Label, Tasks: []string{t.Name}, Summary: "task is invalid and counts as task_invalid",
				Detail: FirstError(it.Problems),
			})
		case len(it.Problems) > 0:
			doubtful = append(doubtful, t.Name)
			first = cmp.Or(first, it.Problems[0].String())
		}
	}
	if len(doubtful) > 0 {
		m.problems.add(Problem{
			Severity: Warning, Dataset: d.Label, Tasks: doubtful, Summary: "task has warnings", Detail: "The first is " + first,
		})
	}
	return nil
}

// FirstError returns the first problem that makes a task invalid, and the
// number of others.
func FirstError(ps []task.Problem) string {
	var errs []string
	for _, p := range ps {
		if p.Severity == task.Error {
			errs = append(errs, p.String())
		}
	}
	switch len(errs) {
	case 0:
		return "no reason given"
	case 1:
		return errs[0]
	default:
		return fmt.Sprintf("%s (and %d more)", errs[0], len(errs)-1)
	}
}

// pick applies limit to the tasks in the order of their names.
func pick(items []task.Item, d experiment.Dataset) []task.Item {
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b task.Item) int {
		return cmp.Or(strings.Compare(a.Name(), b.Name()), strings.Compare(a.Path, b.Path))
	})
	if d.Limit > 0 && d.Limit < len(items) {
		items = items[:d.Limit]
	}
	return items
}

func formatNames(fs []task.Format) string {
	if len(fs) == 0 {
		return "none in this build"
	}
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.Name()
	}
	return strings.Join(names, ", ")
}

// identities computes the identity of each cell for each of its datasets.
func (m *maker) identities() {
	for _, c := range m.plan.Experiment.Cells {
		ids := make(map[string]json.RawMessage, len(c.Datasets))
		for i := range c.Datasets {
			ids[c.Datasets[i].Label] = c.Identity(&c.Datasets[i])
		}
		m.plan.identities = append(m.plan.identities, ids)
	}
}

// TrialID returns the SHA-256, in hex, of the canonical JSON (sorted keys, no
// spaces) of the task's name and digest, the identity of the cell, and the
// repetition: see cell.Canonical. It does not depend on paths, ports, addresses or
// times.
func TrialID(task, digest string, cell json.RawMessage, repetition int) string {
	return sum(map[string]any{
		"task":       map[string]string{"name": task, "digest": digest},
		"cell":       cell,
		"repetition": repetition,
	})
}

// sum returns the SHA-256, in hex, of v as JSON. Raw parts must be canonical.
func sum(v any) string {
	h := sha256.Sum256(cell.JSON(v))
	return hex.EncodeToString(h[:])
}

// maxTrials is the largest number of trials of a run: each takes a line of the
// manifest and some 500 bytes of memory.
const maxTrials = 1_000_000

// trials makes the trials, one repetition after another, so that a run that is
// stopped early has measured every cell about equally often.
func (m *maker) trials() {
	p := m.plan
	repeat := max(1, p.Experiment.Repeat)
	total := 0
	for i := range p.Experiment.Cells {
		for _, d := range p.Experiment.Cells[i].Datasets {
			total += repeat * len(m.datasets[d.Label])
		}
	}
	if total > maxTrials {
		m.problems.add(Problem{
			Severity: Error, Summary: fmt.Sprintf("%d trials are too many", total),
			Detail: fmt.Sprintf("%d cells on their tasks, %d times each; at most %d. Lower repeat, leave out values of the matrix, or split the experiment.",
				len(p.Experiment.Cells), repeat, maxTrials),
		})
		return
	}
	p.Trials = make([]Trial, 0, total)
	ids := make(map[string]int, total)
	dirs := make(map[string]bool, total)
	for rep := 1; rep <= repeat; rep++ {
		for place := range p.Tasks {
			for i := range p.Experiment.Cells {
				d := datasetOf(p.Experiment.Cells[i], p.Tasks[place].Dataset)
				if d == nil {
					continue
				}
				t := m.trial(i, d, place, rep)
				if before, ok := ids[t.ID]; ok {
					m.twice(&p.Trials[before], &t)
					continue
				}
				for n := 9; dirs[t.Dir] && n <= len(t.ID); n++ {
					t.Dir = store.TrialDir(t.Task, p.Experiment.Cells[i].Slug, rep, t.ID[:8]) + t.ID[8:n]
				}
				ids[t.ID], dirs[t.Dir] = len(p.Trials), true
				p.Trials = append(p.Trials, t)
			}
		}
	}
}

func datasetOf(c *experiment.Cell, label string) *experiment.Dataset {
	for i := range c.Datasets {
		if c.Datasets[i].Label == label {
			return &c.Datasets[i]
		}
	}
	return nil
}

func (m *maker) trial(cell int, d *experiment.Dataset, place, rep int) Trial {
	t, c := &m.plan.Tasks[place], m.plan.Experiment.Cells[cell]
	out := Trial{Place: place, Trial: store.Trial{Task: t.Name, Dataset: d.Label, Cell: cell, Repetition: rep}}
	identity := m.plan.identities[cell][d.Label]
	if t.Task != nil {
		out.TaskDigest, out.Labels = t.Task.Digest, t.Task.Labels
		out.ID = TrialID(t.Name, t.Task.Digest, identity, rep)
	} else {
		// It never runs, so its id only has to be unique.
		out.Invalid = FirstError(t.Problems)
		out.ID = sum([]any{"invalid", d.Label, t.Path, identity, c.Key, rep})
	}
	out.Dir = store.TrialDir(t.Name, c.Slug, rep, out.ID)
	return out
}

// twice reports two trials that are equal in everything that could change their
// result: running both would count one thing twice.
func (m *maker) twice(a, b *Trial) {
	p := Problem{Severity: Error, Summary: "trial is planned twice"}
	ca, cb := m.plan.Experiment.Cells[a.Cell].Key, m.plan.Experiment.Cells[b.Cell].Key
	if a.Cell != b.Cell {
		p.Cells = []string{ca, cb}
		p.Detail = "These cells differ in nothing that could change a result. Use the axis in an agent, model, environment or limit, or remove it; to run the same more often, raise repeat."
	} else {
		p.Tasks = []string{a.Task}
		p.Detail = fmt.Sprintf("The datasets %s hold the same task. Exclude it from one of them.", strings.Join([]string{a.Dataset, b.Dataset}, " and "))
	}
	m.problems.add(p)
}
