package cluster_test

import (
	"testing"

	"github.com/berth-eval/berth/core/run/cluster"
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
