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
		dirs = append(dirs, a.sandbox.Absolute(k.Dir))
		for _, name := range k.FromImage {
			if o.role == agent.RoleOracle || slices.Contains(own, name) {
				continue
			}
			if err = a.hasSkill(ctx, path.Join(a.sandbox.Absolute(k.Dir), name)); err != nil {
				return nil, fmt.Errorf("skill %q of the task: %w", name, err)
			}
		}
	}
	return dirs, nil
}

func (a *attempt) hasSkill(ctx context.Context, dir string) error {
	r, err := a.sandbox.Core().Exec(ctx, sandbox.Command{Argv: []string{"test", "-d", dir}, User: a.sandbox.User, Timeout: limits.Open})
	if err == nil && !r.OK() {
		return outcome.On(record.ByTask, fmt.Errorf("there is no %s in the sandbox: use an image that has it, or an agent with a block skill %q", dir, path.Base(dir)))
	}
	return outcome.On(record.ByEnvironment, err)
}
