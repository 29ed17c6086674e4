package plan

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins/task"
)

// Declared are tasks that declare the same features, which the cells deliver in the
// same ways.
type Declared struct {
	Features []task.Feature `json:"features"`
	Tasks    []string       `json:"tasks"`
	// Cells say how the cells deliver the features. Each cell that runs the tasks is in
	// one of them.
	Cells []Delivered `json:"cells"`
}

// Delivered is how some cells deliver the features of some tasks.
type Delivered struct {
	Cells    []string                           `json:"cells"` // keys
	Delivery map[task.Feature]feasible.Delivery `json:"delivery"`
}

// declare notes how a cell delivers what a task declares. refused is why the cell
// cannot run the task.
func (a *asker) declare(ctx context.Context, cell int, tc cell.Cell, place int, refused []feasible.Problem) error {
	t := a.plan.Tasks[place].Task
	features := featuresOf(t)
	if len(features) == 0 {
		return nil
	}
	because, err := a.because(ctx, cell, tc, place, refused)
	if err != nil {
		return err
	}
	delivery := map[task.Feature]feasible.Delivery{}
	for _, f := range features {
		if delivery[f] = feasible.Deliver(t, f, tc, a.plan.needs[cell].Agent); slices.Contains(because, f) {
			delivery[f] = feasible.Refused
		}
	}
	if a.delivered == nil {
		a.delivered = map[int][]Delivered{}
	}
	key, list := a.plan.Experiment.Cells[cell].Key, a.delivered[place]
	at := slices.IndexFunc(list, func(d Delivered) bool { return maps.Equal(d.Delivery, delivery) })
	if at < 0 {
		a.delivered[place] = append(list, Delivered{Cells: []string{key}, Delivery: delivery})
	} else {
		list[at].Cells = append(list[at].Cells, key)
	}
	return nil
}

func featuresOf(t *task.Task) (fs []task.Feature) {
	for _, n := range t.Needs() {
		if !slices.Contains(fs, n.Feature) {
			fs = append(fs, n.Feature)
		}
	}
	return fs
}

// because returns the features without which a cell would have fewer reasons to refuse
// a task. Tasks with the same features and reasons get the same answer.
func (a *asker) because(ctx context.Context, cell int, tc cell.Cell, place int, refused []feasible.Problem) (because []task.Feature, err error) {
	if len(refused) == 0 {
		return nil, nil
	}
	t, left := &a.plan.Tasks[place], slices.Clone(refused)
	features := featuresOf(t.Task)
	key := fmt.Sprint(cell, features, refused)
	if known, ok := a.causes[key]; ok {
		return known, nil
	}
	// The last one is blamed only for what no other feature explains: everything that a
	// later stage asks for is gone without it.
	last := slices.DeleteFunc(slices.Clone(features), func(f task.Feature) bool { return f != task.FeatureStages })
	for _, f := range append(slices.DeleteFunc(slices.Clone(features), func(f task.Feature) bool { return f == task.FeatureStages }), last...) {
		without := t.Task.Without(f)
		if without == nil {
			continue
		}
		report, err := a.refusals(ctx, cell, tc, without, t.Options)
		if err != nil {
			return nil, err
		}
		gone := func(p feasible.Problem) bool { return !slices.Contains(report.Refusals, p) }
		if f == task.FeatureStages && slices.ContainsFunc(left, gone) || f != task.FeatureStages && slices.ContainsFunc(refused, gone) {
			because = append(because, f)
		}
		left = slices.DeleteFunc(left, gone)
	}
	if a.causes == nil {
		a.causes = map[string][]task.Feature{}
	}
	a.causes[key] = because
	return because, nil
}

// declared groups the tasks of the plan.
func (a *asker) declared() (all []Declared) {
	for place := range a.plan.Tasks {
		list, ok := a.delivered[place]
		if !ok {
			continue
		}
		t := &a.plan.Tasks[place]
		d := Declared{Features: featuresOf(t.Task), Tasks: []string{t.Name}, Cells: list}
		at := slices.IndexFunc(all, func(o Declared) bool {
			return slices.Equal(o.Features, d.Features) && slices.EqualFunc(o.Cells, d.Cells, func(x, y Delivered) bool {
				return slices.Equal(x.Cells, y.Cells) && maps.Equal(x.Delivery, y.Delivery)
			})
		})
		if at < 0 {
			all = append(all, d)
		} else {
			all[at].Tasks = append(all[at].Tasks, t.Name)
		}
	}
	return all
}
