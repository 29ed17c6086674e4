package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/plugins/task"
)

// The time of a worker is compared with that of an attempt, as far as it is limited.
func TestTimeOfAWorkerIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		worker, task, limit time.Duration // limit is that of the experiment
		severity            plan.Severity // empty: no problem
		says                string
	}{
		{"fits", time.Hour, 10 * time.Minute, 0, "", ""},
		{"does not fit", 10 * time.Minute, 10 * time.Minute, 0, plan.Error, "may take 14m0s with grace"},
		{"is made to fit", 10 * time.Minute, 10 * time.Minute, time.Minute, "", ""},
		{"has no limit", time.Hour, 0, 0, plan.Warning, "ends as preempted"},
		{"is limited by the experiment", time.Hour, 0, time.Minute, "", ""},
		{"does not fit whatever the agent does", time.Minute, 0, 0, plan.Error, "may take 4m0s with grace even if the agent"},
		{"worker has no limit", 0, 0, 0, "", ""},
	} {
		p := planOf(2)
		p.Experiment.Executor.Kind, p.Experiment.Executor.Time, p.Experiment.Executor.Grace = "slurm", c.worker, 2*time.Minute
		p.Experiment.Cells[0].Limits.AgentTime = c.limit
		one := &task.Task{Stages: make([]task.Stage, 1)}
		one.Stages[0].Agent.Time = task.Duration(c.task)
		for i := range p.Trials {
			p.Trials[i].Task, p.Trials[i].Place = "same", len(p.Tasks)
		}
		p.Tasks = append(p.Tasks, plan.Task{Name: "same", Task: one})
		ps := cluster.Check(p)
		switch {
		case c.severity == "" && len(ps) > 0:
			t.Errorf("%s: %+v", c.name, ps)
		case c.severity != "" && (len(ps) != 1 || ps[0].Severity != c.severity || !strings.Contains(ps[0].Detail, c.says)):
			t.Errorf("%s: %+v", c.name, ps)
		}
	}
}

// A budget that attempts share is held by the coordinator, which has to see requests.
func TestASharedBudgetNeedsTheRelay(t *testing.T) {
	t.Parallel()
	m := &cell.Model{}
	for models, want := range map[string]bool{"": true, "relay": true, "direct": false} {
		p := planOf(1)
		p.Experiment.Executor.Models = models
		if before := cluster.Relayed(p.Experiment)(m); before != (models == "relay") || len(cluster.Check(p)) > 0 {
			t.Errorf("%q without a budget: relayed is %v, %+v", models, before, cluster.Check(p))
		}
		p.Experiment.Cells[0].PerCell.Requests = new(int64(3))
		if got := cluster.Relayed(p.Experiment)(m); got != want || len(cluster.Check(p)) > 0 == want {
			t.Errorf("%q: relayed is %v, %+v", models, got, cluster.Check(p))
		}
	}
}
