package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

// Settings returns what is wrong with what a task sets for the plugins of a cell, with
// file and line where the format knows them. What is for a plugin that is not there is
// not judged. An error means that a plugin does not answer.
func Settings(ctx context.Context, f task.Format, t *task.Task, c cell.Cell, validate feasible.ValidateSettings) (ps []task.Problem, err error) {
	surface, conf := c.Environment.WithSurface()
	for _, s := range t.Settings() {
		kind, name, of := plugins.KindEnvironment, surface, plugins.Settings{JSON: s.JSON, Config: conf.JSON(), Capture: s.Capture}
		if s.Verifier != "" {
			v := c.Verifiers[s.Verifier]
			kind, name, of.Config = plugins.KindVerifier, s.Verifier, v.Config.JSON()
			if v.Plugin != "" {
				name = v.Plugin
			}
		}
		if name == "" {
			continue
		}
		wrong, err := validate(ctx, kind, name, of)
		if errors.Is(err, plugin.ErrUnknown) {
			continue // reported elsewhere
		}
		if err != nil {
			return nil, err
		}
		for _, w := range wrong {
			key := s.Key
			switch {
			case strings.HasPrefix(string(w.Path), "["):
				key += string(w.Path)
			case w.Path != "":
				key += "." + string(w.Path)
			}
			p := task.Located(f, t, task.Problem{Severity: task.Error, Key: key, Summary: w.Summary, Detail: w.Detail})
			p.Summary = fmt.Sprintf("%s %q: %s: %s", kind, name, p.Key, w.Summary)
			if !slices.Contains(ps, p) { // what all stages share is written once
				ps = append(ps, p)
			}
		}
	}
	return ps, nil
}

// settings returns what is wrong with what a task sets for the plugins of a cell.
func (a *asker) settings(ctx context.Context, c *experiment.Cell, tc cell.Cell, t *task.Task) (wrong []feasible.Problem, err error) {
	at := slices.IndexFunc(a.in.Formats, func(f task.Format) bool { return f.Name() == t.Format })
	if a.in.Settings == nil || at < 0 {
		return nil, nil
	}
	ps, err := Settings(ctx, a.in.Formats[at], t, tc, func(ctx context.Context, kind plugins.Kind, name string, s plugins.Settings) ([]config.Problem, error) {
		return a.plan.Checker.Settings(ctx, kind, name, s, a.in.Settings)
	})
	if err != nil {
		return nil, a.failed(ctx, fmt.Sprintf("a plugin that task %s has settings for", t.Name), c.Key, err)
	}
	for _, p := range ps {
		detail := p.Detail
		p.Detail = ""
		wrong = append(wrong, feasible.Problem{Summary: p.String(), Detail: detail})
	}
	return wrong, nil
}
