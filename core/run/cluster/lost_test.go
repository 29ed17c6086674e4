package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
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
	journal *cluster.Journal
	claims  *cluster.Claimer
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

// A pilot that does not see the shared disk any more says nothing; one that dies between
// its lease and the line that tells of it did not say that it has the attempt, and no
// other can claim it. Neither keeps the attempt from being made again.
func TestASilentPilotHoldsNoAttemptForEver(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		b := newBed(t, 1)
		c := b.carry(quick, 1)
		b.ghost("ghost").claim(0, silent)
		b.pilot("living", 1, passes("living"))
		c.wait(t)
		if outcomes, _ := b.attempts(); outcomes[record.Passed] != 1 || outcomes[record.Preempted] != 1 {
			t.Errorf("its claim is not told: %v; %v", silent, outcomes)
		}
	}
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
			raw, sealed := cluster.SealAt(cluster.Line{Kind: cluster.Alive, Running: []cluster.Running{{Attempt: name}}}, seq, time.Now().Add(off))
			must(t, sealed)
			_, err = file.Write(raw)
			must(t, err)
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

// root makes the folders that leases need.
func root(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"leases", "pilots"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	return dir
}

// race lets eight claimers claim the same attempts at the same time, and returns
// how many attempts had more than one winner, and how many had none.
func race(t *testing.T, claim func(who int, name string) bool) (twice, never int) {
	t.Helper()
	const attempts, claimers = 200, 8
	winners := make([]atomic.Int32, attempts)
	start := make([]sync.WaitGroup, attempts) // all claimers begin an attempt together
	for i := range start {
		start[i].Add(claimers)
	}
	var all sync.WaitGroup
	for who := range claimers {
		all.Go(func() {
			for i := range attempts {
				start[i].Done()
				start[i].Wait()
				if claim(who, strconv.Itoa(i)) {
					winners[i].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range winners {
		switch n := winners[i].Load(); {
		case n > 1:
			twice++
		case n == 0:
			never++
		}
	}
	return twice, never
}

func TestOneOfManyClaimersGetsAnAttempt(t *testing.T) {
	t.Parallel()
	dir := root(t)
	claimers := make([]*cluster.Claimer, 8)
	for i := range claimers {
		name := "pilot-" + strconv.Itoa(i)
		claimers[i] = cluster.NewTestClaimer(dir, filepath.Join(dir, "pilots", name), name)
	}
	twice, never := race(t, func(who int, name string) bool {
		mine, err := claimers[who].Claim(name)
		if err != nil {
			t.Error(err)
		}
		return mine
	})
	if twice+never > 0 {
		t.Errorf("%d attempts have two holders, %d have none", twice, never)
	}
}

// The server made the link, the answer got lost, and the repeated request says
// that the name is taken: that is how a link over NFS may end.
func TestALostAnswerIsNoLostAttempt(t *testing.T) { //nolint:paralleltest // it replaces the link
	for _, tt := range []struct {
		name   string
		link   func(from, to string) error
		mine   bool
		answer error
	}{
		{"made, and reported as taken", func(from, to string) error {
			if err := os.Link(from, to); err != nil {
				return err
			}
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EEXIST}
		}, true, nil},
		{"made, and reported as failed", func(from, to string) error {
			if err := os.Link(from, to); err != nil {
				return err
			}
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EIO}
		}, true, nil},
		{"reported as made, and another's", func(_, to string) error {
			dir := filepath.Dir(filepath.Dir(to))
			other := cluster.NewTestClaimer(dir, filepath.Join(dir, "pilots", "other"), "other")
			cluster.SetLink(t, os.Link)
			if mine, err := other.Claim(filepath.Base(to)); err != nil || !mine {
				return errors.New("the other one has it not")
			}
			return nil
		}, false, nil},
		{"reported as taken, and not seen yet", func(from, to string) error {
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EEXIST}
		}, false, cluster.ErrUndecided},
		{"not possible", func(from, to string) error {
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EPERM}
		}, false, syscall.EPERM},
	} {
		t.Run(tt.name, func(t *testing.T) { //nolint:paralleltest // it replaces the link
			dir := root(t)
			c := cluster.NewTestClaimer(dir, filepath.Join(dir, "pilots", "me"), "me")
			cluster.SetLink(t, tt.link)
			mine, err := c.Claim("a-1")
			if mine != tt.mine || !errors.Is(err, tt.answer) {
				t.Errorf("mine %v, %v; want %v, %v", mine, err, tt.mine, tt.answer)
			}
		})
	}
}
