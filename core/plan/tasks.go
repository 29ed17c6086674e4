package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/experiment"
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
