package plan

import (
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
	// Cells say how the cells that can run the tasks deliver the features. Each of them
	// is in one.
	Cells []Delivered `json:"cells"`
}

// Delivered is how some cells deliver the features of some tasks.
type Delivered struct {
	Cells    []string                           `json:"cells"` // keys
	Delivery map[task.Feature]feasible.Delivery `json:"delivery"`
}

// declare notes how a cell that can run a task delivers what it declares, and of
// others only that the task declares it.
func (a *asker) declare(cell int, tc cell.Cell, place int, refused bool) {
	t := a.plan.Tasks[place].Task
	features := featuresOf(t)
	if len(features) == 0 {
		return
	}
	if a.delivered == nil {
		a.delivered = map[int][]Delivered{}
	}
	key, list := a.plan.Experiment.Cells[cell].Key, a.delivered[place]
	if a.delivered[place] = list; refused {
		return
	}
	delivery := map[task.Feature]feasible.Delivery{}
	for _, f := range features {
		delivery[f] = feasible.Deliver(t, f, tc, a.plan.needs[cell].Agent)
	}
	at := slices.IndexFunc(list, func(d Delivered) bool { return maps.Equal(d.Delivery, delivery) })
	if at < 0 {
		a.delivered[place] = append(list, Delivered{Cells: []string{key}, Delivery: delivery})
	} else {
		list[at].Cells = append(list[at].Cells, key)
	}
}

func featuresOf(t *task.Task) (fs []task.Feature) {
	for _, n := range t.Needs() {
		if !slices.Contains(fs, n.Feature) {
			fs = append(fs, n.Feature)
		}
	}
	return fs
}

// declared groups the tasks of the plan.
func (a *asker) declared() (all []Declared) {
	for place := range a.plan.Tasks {
		list, ok := a.delivered[place]
		if !ok {
			continue
		}
		t := &a.plan.Tasks[place]
		d := Declared{Features: featuresOf(t.Task), Tasks: []string{t.Name}, Cells: append([]Delivered{}, list...)}
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
