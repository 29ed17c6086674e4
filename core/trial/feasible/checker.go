package feasible

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	surface "github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
)

// Checker is the only place that calls Check of agents and environments, and asks
// about settings of tasks. It
// caches answers without a refusal, because the tasks of a plan and the
// attempts of a run ask the same again and again. The zero value is ready for
// use; a nil Checker caches nothing. Safe for concurrent use.
type Checker struct{ answers sync.Map }

// question identifies a question and the build of the plugin.
type question struct {
	Of   record.PluginUsed
	Spec any
}

// Agent asks what a session of an agent needs.
func (c *Checker) Agent(ctx context.Context, p agent.Agent, of record.PluginUsed, a cell.Agent, role agent.Role) (agent.Needs, error) {
	r := agent.CheckRequest{Config: a.Config.JSON(), Models: map[string]model.Info{}, Role: role}
	for name, m := range a.Models {
		r.Models[name] = m.Info()
	}
	return answer(ctx, c, question{of, r},
		func(ctx context.Context) (agent.Needs, error) { return p.Check(ctx, r) },
		func(n agent.Needs) bool { return len(n.Refusals) == 0 })
}

// Environment asks what an environment refuses of spec, or provides less of.
// spec is made by Spec.
func (c *Checker) Environment(ctx context.Context, p environment.Environment, of record.PluginUsed, spec environment.Spec) (environment.Report, error) {
	return answer(ctx, c, question{of, spec},
		func(ctx context.Context) (environment.Report, error) { return p.Check(ctx, spec) },
		func(r environment.Report) bool { return len(r.Refusals) == 0 })
}

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

// ValidateSettings asks a plugin what is wrong with what a task sets for it. An error
// means that it cannot be asked.
type ValidateSettings func(ctx context.Context, kind plugins.Kind, name string, s plugins.Settings) ([]config.Problem, error)

// Settings asks a plugin, with ask, about what a task sets for it.
func (c *Checker) Settings(ctx context.Context, kind plugins.Kind, name string, s plugins.Settings, ask ValidateSettings) ([]config.Problem, error) {
	return answer(ctx, c, question{record.PluginUsed{Kind: string(kind), Name: name}, s},
		func(ctx context.Context) ([]config.Problem, error) { return ask(ctx, kind, name, s) },
		func(ps []config.Problem) bool { return len(ps) == 0 })
}

// answer returns the cached answer to a question, or else the answer of ask,
// which is cached if it is accepted.
func answer[T any](ctx context.Context, c *Checker, q question, ask func(context.Context) (T, error), accepted func(T) bool) (T, error) {
	var none T
	key, err := json.Marshal(q)
	if err != nil {
		return none, err
	}
	if c != nil {
		if v, ok := c.answers.Load(string(key)); ok {
			if kept, ok := v.(T); ok {
				return kept, nil
			}
		}
	}
	ctx, cancel := limits.Limited(ctx, "check", limits.Check)
	defer cancel()
	v, err := ask(ctx)
	if err == nil && accepted(v) && c != nil {
		c.answers.Store(string(key), v)
	}
	return v, limits.Caused(ctx, err)
}
