package feasible

import (
	"context"
	"fmt"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/environment"
	surface "github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
)

// Surface asks the plugin with the surface what it needs for the stages of a
// task, and says why they cannot have what they ask for.
func (c *Checker) Surface(ctx context.Context, p environment.Environment, of record.PluginUsed, t *task.Task, in cell.Environment) (surface.Needs, []Problem, error) {
	_, conf := in.WithSurface()
	return surface.Ask(p, t, conf.JSON(), func(s environment.Surface, r environment.SurfaceRequest) (environment.SurfaceNeeds, error) {
		return answer(ctx, c, question{of, r},
			func(ctx context.Context) (environment.SurfaceNeeds, error) { return s.Needs(ctx, r) },
			func(n environment.SurfaceNeeds) bool { return len(n.Refusals) == 0 })
	})
}

// surfaceProblems says what of a task and an agent lacks a surface.
func surfaceProblems(t *task.Task, c cell.Cell, k Known) (ps []Problem) {
	for i := range t.Stages {
		if s := &t.Stages[i]; len(s.Captures) > 0 && s.Surface == nil {
			ps = append(ps, Problem{Summary: "task captures from a surface that no stage has", Detail: inStage(s.Name)})
		}
	}
	if k.Agent != nil && k.Agent.Surface && !t.HasSurface() {
		ps = append(ps, Problem{
			Summary: fmt.Sprintf("agent %q needs a surface", c.Agent.Plugin), Detail: "The task has none. Choose another agent, or exclude the task.",
		})
	}
	return ps
}
