package trial

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// skills returns the folders in the sandbox that have skills for the agent. An agent
// must not work without one that the task counts on: it brings it itself, or the image
// has it. The oracle uses none.
func (a *attempt) skills(ctx context.Context, o opening) (dirs []string, err error) {
	own := agent.SkillsOf(o.cell.Config.JSON())
	for _, k := range a.task.Skills {
		for i := range a.task.Resources {
			if r := &a.task.Resources[i]; k.Dir == "" && r.Name == k.Resource && r.Place != "" {
				dirs = append(dirs, a.sandbox.Absolute(r.Place))
			}
		}
		if k.Dir == "" {
			continue
		}
		dir := a.sandbox.Absolute(k.Dir)
		dirs = append(dirs, dir)
		if there, err := a.hasFolder(ctx, dir); err != nil {
			return nil, err
		} else if !there && o.role == agent.RoleAgent {
			a.recorder.Note(record.Phase{Name: record.PhaseSetup, Stage: o.stage.Name}, "skills_missing", "there is no folder %s in the sandbox, where the task has skills", dir)
		}
		for _, name := range k.FromImage {
			if o.role == agent.RoleOracle || slices.Contains(own, name) {
				continue
			}
			skill := path.Join(dir, name)
			there, err := a.hasFolder(ctx, skill)
			if err != nil {
				return nil, err
			}
			if !there {
				return nil, outcome.On(record.ByTask, fmt.Errorf("skill %q of the task: there is no %s in the sandbox: use an image that has it, or an agent with a block skill %q", name, skill, name))
			}
		}
	}
	return dirs, nil
}

// hasFolder reports whether the sandbox has a folder.
func (a *attempt) hasFolder(ctx context.Context, dir string) (bool, error) {
	r, err := a.sandbox.Core().Exec(ctx, sandbox.Command{Argv: []string{"test", "-d", dir}, User: a.sandbox.User, Timeout: limits.Open})
	if err != nil {
		return false, outcome.On(record.ByEnvironment, fmt.Errorf("look for skills: %w", err))
	}
	return r.OK(), nil
}
