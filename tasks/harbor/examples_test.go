package harbor

import (
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

func TestExamplesAreWithoutProblems(t *testing.T) {
	t.Parallel()
	for dataset, want := range map[string]int{"quickstart": 3, "faults": 7} {
		l, err := task.List(t.Context(), Format{}, "../../examples/"+dataset+"/tasks", task.ListOptions{})
		if err != nil || len(l.Items) != want || len(l.Other) != 0 {
			t.Errorf("%s: got %d tasks, %v, %v; want %d", dataset, len(l.Items), l.Other, err, want)
		}
		for _, it := range l.Items {
			for _, p := range it.Problems {
				t.Errorf("%s/%s: %s", dataset, it.Path, p)
			}
			if it.Task != nil && it.Task.Stages[0].Reference == nil {
				t.Errorf("%s/%s has no solution", dataset, it.Path)
			}
		}
	}
}
