package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/plugins/task"
)

// Readers of a run see its pilots as the newest coordinator does: one that works, one
// that is lost, one that is back, and one that has ended.
func TestReadersSeeThePilotsOfARun(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	c := b.carry(quick, 2)
	g := b.ghost("ghost")
	name := g.claim(0, false)
	seen := func(pilot string) (p cluster.PilotState) {
		s, err := cluster.Read(b.store.Dir)
		must(t, err)
		for _, p = range s.Pilots {
			if p.Pilot == pilot {
				return p
			}
		}
		return cluster.PilotState{}
	}
	b.until("the pilot works", func() bool { p := seen("ghost"); return p.Running == 1 && p.Node == "haunted" && !p.Lost })
	s, err := cluster.Read(b.store.Dir)
	must(t, err)
	if s.Working[name].Worker.Pilot != "ghost" || s.Waits != "" {
		t.Errorf("%+v", s)
	}
	b.until("the pilot is lost", func() bool { p := seen("ghost"); return p.Lost && p.Running == 0 })
	must(t, g.journal.Add(cluster.Line{Kind: cluster.Alive}, cluster.Line{Kind: cluster.Discarded, Attempt: name}))
	b.until("the pilot is back", func() bool { p := seen("ghost"); return !p.Lost && p.Running == 0 && p.Published == 0 })
	p := b.pilot("other", 2, passes("other"))
	c.wait(t)
	must(t, <-p.done)
	if o := seen("other"); !o.Ended || o.Why != "the run has ended" || o.Published != 2 || o.Last.Before(o.Began) {
		t.Errorf("%+v", o)
	}
}

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

// Of a run with pilots, what no pilot has taken can be cancelled; the rest is refused
// with a reason, and goes on.
func TestWhatPilotsHaveIsNotCancelled(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	control := &run.Control{}
	var report run.Report
	done := make(chan error, 1)
	go func() {
		s := run.Spec{Plan: b.plan, Store: b.store, Control: control, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: new(2)}}}
		var err error
		report, err = cluster.Execute(t.Context(), s, calm, nil, func(run.Event) {})
		done <- err
	}()
	g := b.ghost("ghost")
	g.claim(0, false)
	all := func(*plan.Trial) bool { return true }
	must(t, control.Hold(true, ""))
	if err := control.EndTurn(b.plan.Trials[0].ID, "x"); err == nil || !strings.Contains(err.Error(), "pilots") {
		t.Errorf("a turn of a pilot: %v", err)
	}
	b.until("the pilot's claim is known, and the other attempt is cancelled", func() bool {
		first := func(p *plan.Trial) bool { return p.ID == b.plan.Trials[0].ID }
		did, err := control.Cancel(first, "a slip")
		must(t, err)
		return len(did.Kept) == 1 && strings.Contains(did.Kept[0].Error(), "a pilot has taken its attempt")
	})
	did := run.Cancelled{}
	b.until("the other attempt is cancelled", func() bool {
		more, err := control.Cancel(all, "a slip")
		must(t, err)
		did.Waiting, did.Running = did.Waiting+more.Waiting, did.Running+more.Running
		return did.Running == 1
	})
	if did.Waiting != 2 {
		t.Errorf("cancelled: %+v", did)
	}
	must(t, control.Hold(false, ""))
	must(t, g.journal.Add(cluster.Line{Kind: cluster.PilotEnded, Why: "enough"}))
	must(t, <-done)
	var got []record.Outcome
	for _, tr := range b.store.Index().Trials {
		got = append(got, tr.Outcome())
	}
	if report.Ran != 2 || got[0] != record.Preempted || got[1] != record.Cancelled || got[2] != record.NotRun || got[3] != record.NotRun {
		t.Errorf("%+v: %v", report, got)
	}
	if why := b.store.Index().Trials[1].Attempts[0].Result.Error; !strings.Contains(why, "cancelled before a pilot took it: a slip") {
		t.Errorf("the result says %q", why)
	}
}
