package experiment_test

import (
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	core "github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
)

func TestAWarningAboutEverythingNamesNothing(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Experiment: &core.Experiment{Cells: make([]*core.Cell, 2)}, Tasks: make([]plan.Task, 2)}
	for _, tt := range []struct {
		q    plan.Problem
		want string
	}{
		{plan.Problem{Severity: plan.Warning, Tasks: []string{"a", "b"}, Cells: []string{"x", "y"}, Summary: "odd", Dataset: "d"}, "odd"},
		{plan.Problem{Severity: plan.Warning, Tasks: []string{"a"}, Cells: []string{"x", "y"}, Summary: "odd"}, "task a: odd"},
		{plan.Problem{Severity: plan.Warning, Tasks: []string{"a", "b"}, Cells: []string{"x"}, Summary: "odd"}, "task a, b: cell x: odd"},
		{plan.Problem{Severity: plan.Error, Tasks: []string{"a", "b"}, Cells: []string{"x", "y"}, Summary: "bad"}, "task a, b: bad"},
	} {
		if got := experiment.Text(p, tt.q); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.q, got, tt.want)
		}
	}
}
