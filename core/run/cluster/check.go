package cluster

import (
	"fmt"
	"time"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/run"
)

// Check returns what of a plan pilots cannot run: requests to models that need a
// key, secrets, and budgets that all pilots would have to share.
func Check(p *plan.Plan) (ps []plan.Problem) {
	kind := p.Experiment.Executor.Kind
	add := func(summary, detail string) {
		ps = append(ps, plan.Problem{Severity: plan.Error, Summary: summary, Detail: detail})
	}
	models := run.Models(p.Experiment.Cells...)
	for _, m := range models {
		if len(m.ChainKeys()) > 0 {
			add(fmt.Sprintf("executor %q cannot use model %q", kind, m.Label),
				"The model needs a key, and keys are not sent to other machines. Use a model without a key, or remove the executor block to run on this machine.")
		}
	}
	for _, c := range p.Experiment.Cells {
		secret := len(c.Agent.Config.Secrets()) + len(c.Environment.Config.Secrets()) + len(c.Environment.SurfaceConfig.Secrets())
		for _, v := range c.Verifiers {
			secret += len(v.Config.Secrets())
		}
		if c.User != nil {
			secret += len(c.User.Agent.Config.Secrets())
		}
		if secret > 0 {
			add(fmt.Sprintf("executor %q cannot run a cell with a secret", kind),
				fmt.Sprintf("A plugin of cell %s has a secret in its configuration, and secrets are not sent to other machines.", c.Slug))
			break
		}
	}
	l := p.Experiment.Limits
	budget := l.CostUSD != nil || l.Tokens != nil || l.Requests != nil
	for _, c := range p.Experiment.Cells {
		budget = budget || c.PerCell.CostUSD != nil || c.PerCell.Tokens != nil || c.PerCell.Requests != nil
	}
	if budget && len(models) > 0 {
		add(fmt.Sprintf("executor %q cannot share a budget among pilots", kind),
			"Budgets of the run and of cells hold only on one machine. Remove cost_usd, tokens and requests from limits and per_cell, and bound each trial with per_trial.")
	}
	return ps
}

// around is what an attempt takes at most besides the times that its task and its
// cell say: its sandbox is removed, and its files are copied.
const around = 2 * time.Minute

// Longest returns a function that returns how long an attempt of a trial may take
// at most, as its task and its cell say; 0: they do not say how long the agent may
// work.
func Longest(p *plan.Plan) func(*plan.Trial) time.Duration {
	return func(t *plan.Trial) time.Duration {
		task := p.Tasks[t.Place].Task
		if task == nil {
			return 0
		}
		l := p.Experiment.Cells[t.Cell].Limits
		sum := around + scaled(task.Environment.StartTime.Std(), l.StartTime, l.StartTimeFactor)
		for i := range task.Stages {
			s := &task.Stages[i]
			agent := scaled(s.Agent.Time.Std(), l.AgentTime, l.AgentTimeFactor)
			if agent == 0 {
				agent = scaled(task.Stages[0].Agent.Time.Std(), l.AgentTime, l.AgentTimeFactor)
			}
			if agent == 0 {
				return 0
			}
			sum += agent + scaled(s.Verify.Time.Std(), l.VerifierTime, l.VerifierTimeFactor)
		}
		return sum
	}
}

// scaled is a time that a task asks for, as a cell changes it.
func scaled(asks, instead time.Duration, factor float64) time.Duration {
	switch {
	case instead > 0:
		return instead
	case factor > 0:
		return time.Duration(float64(asks) * factor)
	default:
		return asks
	}
}
