package cluster_test

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
)

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
