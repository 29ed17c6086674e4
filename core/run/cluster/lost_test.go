package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
)

// ghost is a pilot that the test plays.
type ghost struct {
	b       *bed
	name    string
	journal cluster.Journal
	claims  cluster.Claimer
}

func (b *bed) ghost(name string) *ghost { return b.ghostOf(name, "") }

// ghostOf is a ghost in a job of a scheduler.
func (b *bed) ghostOf(name, job string) *ghost {
	b.t.Helper()
	root := filepath.Join(b.store.Dir, cluster.Dir)
	b.until("a coordinator", func() bool { _, err := os.Stat(filepath.Join(root, "coordinators", "1.claim-0")); return err == nil })
	j, err := cluster.NewTestJournal(filepath.Join(root, "pilots", name+".jsonl"), cluster.Line{Kind: cluster.PilotBegan, Pilot: &cluster.Identity{
		Worker: record.Worker{Pilot: name, Node: "haunted", Job: job}, InFlight: 1,
	}})
	must(b.t, err)
	return &ghost{b: b, name: name, journal: j, claims: cluster.NewTestClaimer(root, filepath.Join(root, "pilots", name), name)}
}

// claim takes the first attempt of a trial. With silent, its journal does not say
// so.
func (g *ghost) claim(trial int, silent bool) string {
	g.b.t.Helper()
	name := cluster.AttemptName(g.b.plan.Trials[trial].ID, 1)
	g.b.until("the job of trial", func() bool {
		_, err := os.Stat(filepath.Join(g.b.store.Dir, cluster.Dir, "queue", name+".json"))
		return err == nil
	})
	mine, err := g.claims.Claim(name)
	if err != nil || !mine {
		g.b.t.Fatalf("claim %s: %v, %v", name, mine, err)
	}
	if !silent {
		must(g.b.t, g.journal.Add(cluster.Line{Kind: cluster.Claimed, Attempt: name}))
	}
	return name
}

// publish publishes that the first attempt of a trial passed.
func (g *ghost) publish(trial int) (*store.Staged, error) {
	g.b.t.Helper()
	t := &g.b.plan.Trials[trial]
	s, err := store.Stage(filepath.Join(g.b.t.TempDir(), "a"), g.b.folder(trial, 1), g.name, 1)
	must(g.b.t, err)
	must(g.b.t, s.Append(record.StepsFile, map[string]string{"by": g.name}))
	return s, s.Publish(resultOf(run.Job{Trial: t, Attempt: s}, record.Passed, g.name))
}

func (b *bed) folder(trial, attempt int) string {
	return filepath.Join(b.store.Dir, store.TrialsDir, b.plan.Trials[trial].Dir, store.AttemptDir(attempt))
}

// A pilot that is silent for too long loses its attempt. When it comes back, its
// copy counts for nothing, and nothing of it is left.
func TestALostPilotThatComesBackLosesToTheOther(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	c := b.carry(quick, 1)
	g := b.ghost("ghost")
	g.claim(0, false)
	b.until("the ghost is lost", func() bool { return b.heard("pilot ghost is lost") })
	b.until("the second attempt", func() bool { _, err := os.Stat(b.folder(0, 2)); return err == nil })

	// Without the guard: a result that is renamed to its name is there twice, once
	// as counted and once as read.
	before, err := os.ReadFile(filepath.Join(b.folder(0, 1), record.ResultFile))
	must(t, err)
	naive := filepath.Join(b.folder(0, 1), "naive.json")
	must(t, os.WriteFile(naive, []byte(strings.Replace(string(before), `"preempted"`, `"passed"`, 1)), 0o600))
	must(t, os.Rename(naive, filepath.Join(b.folder(0, 1), record.ResultFile)))
	if r, readErr := store.ReadResult(b.folder(0, 1)); readErr != nil || r.Outcome != record.Passed {
		t.Fatalf("a rename does not replace the result: %v, %v: the test proves nothing", r, readErr)
	}
	must(t, os.WriteFile(naive, before, 0o600))
	must(t, os.Rename(naive, filepath.Join(b.folder(0, 1), record.ResultFile)))

	if _, err = g.publish(0); !errors.Is(err, store.ErrSettled) {
		t.Errorf("the ghost's copy: %v", err)
	}
	must(t, g.journal.Add(cluster.Line{Kind: cluster.Discarded, Attempt: cluster.AttemptName(b.plan.Trials[0].ID, 1), Why: "late"}))
	b.until("the ghost is back", func() bool { return b.heard("pilot ghost is back") && b.heard("late") })
	must(t, g.journal.Add(cluster.Line{Kind: cluster.PilotEnded, Why: "enough"}))
	if names := listed(t, b.folder(0, 1)); len(names) != 1 || names[0] != record.ResultFile {
		t.Errorf("left of the attempt that was lost: %q", names)
	}
	b.pilot("living", 1, passes("living"))
	if report := c.wait(t); report.Ran != 2 {
		t.Errorf("%+v", report)
	}
	outcomes, x := b.attempts()
	if outcomes[record.Preempted] != 1 || outcomes[record.Passed] != 1 || x.Trials[0].Outcome() != record.Passed {
		t.Errorf("%v", outcomes)
	}
	lost, err := store.ReadResult(b.folder(0, 1))
	must(t, err)
	if lost.Worker == nil || lost.Worker.Pilot != "ghost" || lost.Worker.Node != "haunted" || lost.Worker.Lost != "worker" || lost.Host != "haunted" || !lost.Error.Retry {
		t.Errorf("result of the lost attempt: %+v, %+v", lost.Worker, lost.Error)
	}
}

// A pilot that does not see the shared disk any more says nothing. Without a limit, its
// attempt would wait for it for ever.
func TestASilentPilotHoldsNoAttemptForEver(t *testing.T) {
	t.Parallel()
	begin := func(s cluster.Settings) (*bed, *carried, *ghost) {
		b := newBed(t, 1)
		c := b.carry(s, 1)
		g := b.ghost("ghost")
		g.claim(0, false)
		b.pilot("living", 1, passes("living"))
		return b, c, g
	}
	unlimited, waits, g := begin(calm) // no limit that is reached here
	limited, c, _ := begin(quick)
	c.wait(t)
	if outcomes, _ := limited.attempts(); outcomes[record.Passed] != 1 || outcomes[record.Preempted] != 1 {
		t.Errorf("%v", outcomes)
	}
	if outcomes, _ := unlimited.attempts(); len(outcomes) != 1 || outcomes[record.NotRun] != 1 {
		t.Errorf("without a limit: %v: the test proves nothing", outcomes)
	}
	s, err := g.publish(0)
	must(t, err)
	sum, err := s.Sum()
	must(t, err)
	must(t, g.journal.Add(cluster.Line{Kind: cluster.Published, Attempt: cluster.AttemptName(unlimited.plan.Trials[0].ID, 1), Sum: sum}))
	waits.wait(t)
}

// A pilot publishes and dies before its journal says so: its result is found.
func TestAResultThatNoJournalTellsOfIsFound(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	c := b.carry(quick, 1)
	g := b.ghost("ghost")
	g.claim(0, false)
	if _, err := g.publish(0); err != nil {
		t.Fatal(err)
	}
	if report := c.wait(t); report.Ran != 1 {
		t.Errorf("%+v", report)
	}
	if outcomes, _ := b.attempts(); outcomes[record.Passed] != 1 || len(outcomes) != 1 {
		t.Errorf("%v", outcomes)
	}
}

// A pilot dies between its lease and the line that tells of it. Without a look at
// the leases, the attempt would wait for ever: no pilot can claim it again.
func TestALeaseThatNoJournalTellsOfIsFound(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	c := b.carry(quick, 1)
	b.ghost("ghost").claim(0, true)
	b.pilot("living", 1, passes("living"))
	c.wait(t)
	if outcomes, _ := b.attempts(); outcomes[record.Passed] != 1 || outcomes[record.Preempted] != 1 {
		t.Errorf("%v", outcomes)
	}
}

// The clock of a pilot is an hour off. Who compared its times with the own clock
// would count it as lost at once; new numbers show that it lives.
func TestTheClockOfAPilotDecidesNothing(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		b := newBed(t, 1)
		c := b.carry(quick, 1)
		g := b.ghost("ghost")
		name := g.claim(0, false)
		file, err := os.OpenFile(filepath.Join(b.store.Dir, cluster.Dir, "pilots", "ghost.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		for seq := 3; seq < 20; seq++ {
			at := time.Now().Add(off)
			raw, sealed := cluster.SealAt(cluster.Line{Kind: cluster.Alive, Running: []cluster.Running{{Attempt: name}}}, seq, at)
			must(t, sealed)
			_, err = file.Write(raw)
			must(t, err)
			if away := time.Since(at).Abs(); away < quick.LostAfter { // it is an hour by construction
				t.Fatalf("the clock is only %s off: the test proves nothing", away)
			}
			time.Sleep(quick.Beat) // as a pilot does
		}
		must(t, file.Close())
		if b.heard("is lost") {
			t.Errorf("a clock that is %s off: lost", off)
		}
		_, err = g.publish(0)
		must(t, err)
		c.wait(t)
		if outcomes, _ := b.attempts(); outcomes[record.Passed] != 1 || len(outcomes) != 1 {
			t.Errorf("%v", outcomes)
		}
	}
}

// Whoever goes on with a run without pilots ends what they have.
func TestARunGoesOnWithoutItsPilots(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	c := b.carry(calm, 2)
	g := b.ghost("ghost")
	g.claim(0, false)
	g.claim(1, true)
	// The coordinator is gone without a word: its store is closed below it.
	dir := b.store.Dir
	copied := t.TempDir()
	must(t, os.CopyFS(copied, os.DirFS(dir)))
	c.stop()
	must(t, g.journal.Add(cluster.Line{Kind: cluster.PilotEnded, Why: "the test goes on elsewhere"}))
	c.wait(t)

	journals, err := filepath.Glob(filepath.Join(copied, store.JournalDir, "*"))
	must(t, err)
	for _, j := range journals { // its process, which is this one, lives
		must(t, os.Remove(j))
	}
	s, err := store.Open(copied, "test", true)
	must(t, err)
	must(t, cluster.Withdraw(t.Context(), s, "test"))
	must(t, s.Close())
	g.b = &bed{t: t, plan: b.plan, store: s}
	if _, err = g.publish(0); !errors.Is(err, store.ErrSettled) {
		t.Errorf("the ghost's copy: %v", err)
	}
	if outcomes, _ := g.b.attempts(); outcomes[record.Preempted] != 2 || len(outcomes) != 1 {
		t.Errorf("%v", outcomes)
	}
	if _, err = cluster.NewPilot(cluster.PilotOptions{Dir: copied, Plan: b.plan, Identity: cluster.Identity{Worker: record.Worker{Pilot: "late"}}}); !errors.Is(err, cluster.ErrOver) {
		t.Errorf("a pilot for a run without a coordinator: %v", err)
	}
}
