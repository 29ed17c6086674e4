package experiment

import (
	"slices"

	"github.com/berth-eval/berth/core/plan"
)

// warnOfUsers adds a warning about tasks in which a simulated user may send
// messages, for cells without one. Their results will be marked as modified.
func (l *Loaded) warnOfUsers() {
	silent := plan.Problem{
		Severity: plan.Warning, Summary: "messages of a simulated user are left out, since the experiment has none",
		Detail: "Only the first turn runs, and the results are marked as modified. Add a block user to run the whole task.",
	}
	for i := range l.Plan.Trials {
		t := &l.Plan.Trials[i]
		c, task := l.Experiment.Cells[t.Cell], l.Plan.Tasks[t.Place].Task
		if task == nil || task.Interaction == nil || task.Interaction.MaxFollowUps == 0 || c.User != nil {
			continue
		}
		if !slices.Contains(silent.Tasks, task.Name) {
			silent.Tasks = append(silent.Tasks, task.Name)
		}
		if !slices.Contains(silent.Cells, c.Key) {
			silent.Cells = append(silent.Cells, c.Key)
		}
	}
	if len(silent.Tasks) > 0 {
		l.Plan.Problems = append(l.Plan.Problems, silent)
	}
}
