package cluster

import (
	"fmt"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/plugins/task"
)

// Check returns what of a plan pilots cannot run.
func Check(p *plan.Plan) []plan.Problem {
	if x := p.Experiment; x.Executor.Models == "direct" && shared(x) {
		return append(tooShort(p), plan.Problem{
			Severity: plan.Error, Summary: fmt.Sprintf("executor %q: models = \"direct\" and a budget of the run or of cells", x.Executor.Kind),
			Detail: "Only the coordinator can hold a budget that attempts on several machines share. Write models = \"relay\", or bound each attempt in per_trial instead.",
		})
	}
	return tooShort(p)
}

// tooShort returns what does not fit into the time limit of a pilot.
func tooShort(p *plan.Plan) (ps []plan.Problem) {
	x := &p.Experiment.Executor
	if x.Time <= 0 {
		return nil
	}
	seen := map[string]bool{}
	for i := range p.Trials {
		t := &p.Trials[i]
		task := p.Tasks[t.Place].Task
		if task == nil || t.Invalid != "" || t.Refused != "" || seen[t.Task] {
			continue
		}
		bounded, limited := longest(task, &p.Experiment.Cells[t.Cell].Limits)
		need := bounded + x.Grace
		of := plan.Problem{Severity: plan.Error, Dataset: t.Dataset, Tasks: []string{t.Task}, Summary: "an attempt does not fit into the time of a pilot"}
		switch {
		case need > x.Time && limited:
			of.Detail = fmt.Sprintf("It may take %s with grace, and a pilot has %s. Raise time in the executor block, or lower agent_time or verifier_time in per_trial.", need, x.Time)
		case need > x.Time:
			of.Detail = fmt.Sprintf("It may take %s with grace even if the agent, which has no time limit, needs none, and a pilot has %s. Raise time in the executor block.", need, x.Time)
		case !limited:
			of.Severity, of.Summary = plan.Warning, "an attempt has no time limit, and a pilot has one"
			of.Detail = fmt.Sprintf("The task does not limit the agent, so an attempt may not fit into the %s of a pilot. Pilots take such attempts as long as they have any time left. An attempt that is under way when this time is over ends as preempted. Set agent_time in per_trial.", x.Time)
		default:
			continue
		}
		seen[t.Task] = true
		ps = append(ps, of)
	}
	return ps
}

// around is what an attempt takes at most besides the times that its task and its
// cell say: its sandbox is removed, and its files are copied.
const around = 2 * time.Minute

// Longest returns how long an attempt of a trial may take at most, as its task and its
// cell say; 0: they do not say how long the agent may work.
func Longest(p *plan.Plan, t *plan.Trial) time.Duration {
	task := p.Tasks[t.Place].Task
	if task == nil {
		return 0
	}
	sum, limited := longest(task, &p.Experiment.Cells[t.Cell].Limits)
	if !limited {
		return 0
	}
	return sum
}

// longest returns how long an attempt may take at most. If some agent has no time
// limit, it is not limited, and the time of that agent is left out.
func longest(t *task.Task, l *cell.Limits) (sum time.Duration, limited bool) {
	sum, limited = around+cell.Scaled(t.Environment.StartTime.Std(), l.StartTime, l.TimeFactor), true
	for i := range t.Stages {
		s := &t.Stages[i]
		agent := cell.Scaled(s.Agent.Time.Std(), l.AgentTime, l.TimeFactor)
		if agent == 0 {
			agent = cell.Scaled(t.Stages[0].Agent.Time.Std(), l.AgentTime, l.TimeFactor)
		}
		limited = limited && agent > 0
		sum += agent + cell.Scaled(s.Verify.Time.Std(), l.VerifierTime, l.TimeFactor)
	}
	return sum, limited
}
