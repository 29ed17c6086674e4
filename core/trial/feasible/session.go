package feasible

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/task"
)

// Sessions returns the task as a cell runs it: if the experiment asks for one
// session, every stage after the first continues it. It does not change t.
func Sessions(t *task.Task, c cell.Cell) *task.Task {
	if !c.Agent.SameSession || len(t.Stages) < 2 {
		return t
	}
	one := *t
	one.Stages = slices.Clone(t.Stages)
	for i := range one.Stages[1:] {
		one.Stages[i+1].SameSession = true
	}
	return &one
}

// sessionProblems says why the stages of a task cannot share a session in a
// cell as they should, and why its agent cannot continue from a prior
// trajectory.
func sessionProblems(t *task.Task, c cell.Cell, k Known) (ps []Problem) {
	add := func(stage, summary, format string, args ...any) {
		ps = append(ps, Problem{Summary: summary, Detail: inStage(stage) + fmt.Sprintf(format, args...)})
	}
	advice := "Remove same_session from the agent block, or choose another agent."
	if !c.Agent.SameSession {
		advice = "The task asks for it. Choose another agent."
	}
	if c.Agent.Prior != "" && k.Agent != nil && !k.Agent.TakesPrior {
		add("", fmt.Sprintf("agent %q cannot continue from a prior trajectory", c.Agent.Plugin),
			"Remove prior_trajectory from the agent block, or choose another agent.")
		k.Agent = nil // nothing more of it
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		// An agent without a model has no conversation, and may ignore the file.
		if s.PriorTrajectory != "" && k.Agent != nil && len(k.Agent.Dialects) > 0 && !k.Agent.TakesPrior {
			add(s.Name, fmt.Sprintf("agent %q cannot continue from a prior trajectory", c.Agent.Plugin),
				"The task has one (%s). Choose another agent, or exclude the task.", s.PriorTrajectory)
		}
		if i == 0 || !s.SameSession {
			continue
		}
		first := &t.Stages[i-1].Agent
		switch {
		case c.Agent.Oracle:
			add(s.Name, "an oracle cannot work in one session", "Each stage has its own solution. Remove same_session from the agent block.")
		case k.Agent != nil && !k.Agent.KeepsSession:
			add(s.Name, fmt.Sprintf("agent %q cannot continue its session in a further stage", c.Agent.Plugin), "%s", advice)
		case first.User != s.Agent.User || !sameEnv(first.Env, s.Agent.Env):
			add(s.Name, "one session cannot change its user or variables", "The agent has others than in stage %q. %s", t.Stages[i-1].Name, advice)
		default:
			continue
		}
		break // of the further stages, the same could be said
	}
	return ps
}

func sameEnv(a, b task.Env) bool { return len(a)+len(b) == 0 || reflect.DeepEqual(a, b) }
