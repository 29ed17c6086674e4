package cluster

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Claimer is for tests.
type Claimer struct{ c *claimer }

// NewTestClaimer makes a claimer.
func NewTestClaimer(root, file, holder string) Claimer {
	return Claimer{newClaimer(root, file, holder)}
}

// Claim takes a lease.
func (c Claimer) Claim(name string) (bool, error) { return c.c.claim(name) }

// SetLink replaces the call that takes a lease.
func SetLink(t *testing.T, f func(from, to string) error) {
	t.Helper()
	link = f
	t.Cleanup(func() { link = os.Link })
}

// Journal is for tests: a journal of a process that the test plays.
type Journal struct{ j *journal }

// NewTestJournal makes a journal.
func NewTestJournal(file string, first Line) (Journal, error) {
	j, err := createJournal(file, first)
	return Journal{j}, err
}

// Add adds lines.
func (j Journal) Add(lines ...Line) error { return j.j.add(lines...) }

// Follower is for tests.
type Follower struct{ f follower }

// NewFollower follows a journal.
func NewFollower(dir, name string) *Follower { return &Follower{follower{dir: dir, name: name}} }

// Read reads what is new.
func (f *Follower) Read(passed time.Duration) ([]Line, error) { return f.f.read(passed) }

// Put gives new content a name.
func Put(dir, name string, v any) error { return put(dir, name, v) }

// SealAt is a line as a process with another clock writes it.
func SealAt(l Line, seq int, at time.Time) ([]byte, error) {
	l.Seq, l.Time = seq, at
	return store.Seal(&l)
}

// ErrUndecided is for tests.
var ErrUndecided = errUndecided

// PlanDigest is for tests.
var PlanDigest = planDigest

// Keep keeps pilots alive until ctx ends, for a run whose pilots begin at once or
// never. say gets what the user is told. It returns why it stopped the run; nil: it
// did not.
func Keep(ctx context.Context, f Fleet, todo int, begin bool, say func(string)) (stopped error) {
	// It has no journal, and writes none.
	c := &Coordinator{o: Options{Say: say}, pilots: map[string]*pilot{}, usurper: errors.New("none")}
	k, err := newKeeper(ctx, f, c, todo)
	if err != nil {
		return err
	}
	if begin {
		for job := range k.jobs {
			c.pilots[job] = &pilot{id: job, identity: &Identity{Worker: record.Worker{Job: job}}}
		}
	}
	k.keep(ctx, func(why error) { stopped = why })
	return stopped
}

// refusing is a scheduler whose pilots end as soon as they are submitted.
type refusing struct {
	Scheduler

	c   *Coordinator
	why string
}

func (r refusing) Submit(ctx context.Context, n int) ([]string, error) {
	jobs, err := r.Scheduler.Submit(ctx, n)
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	for _, job := range jobs {
		r.c.pilots[job] = &pilot{id: job, identity: &Identity{Worker: record.Worker{Job: job}}, ended: true, why: r.why}
	}
	return jobs, err
}

// KeepRefusing keeps pilots alive that take nothing, until that stops the run. It
// returns why it stopped.
func KeepRefusing(ctx context.Context, f Fleet, todo int, why string) (stopped error) {
	c := &Coordinator{o: Options{Say: func(string) {}}, pilots: map[string]*pilot{}, usurper: errors.New("none")}
	f.Scheduler = refusing{f.Scheduler, c, why}
	k, err := newKeeper(ctx, f, c, todo)
	if err != nil {
		return err
	}
	k.keep(ctx, func(why error) { stopped = why })
	return stopped
}
