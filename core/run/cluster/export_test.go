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

// The types and functions of the package that its tests use.
type (
	Claimer  = claimer
	Journal  = journal
	Follower = follower
)

var (
	NewTestClaimer = newClaimer
	NewTestJournal = createJournal
	Put            = put
	PlanDigest     = planDigest
	ErrUndecided   = errUndecided
)

// SetLink replaces the call that takes a lease.
func SetLink(t *testing.T, f func(from, to string) error) {
	t.Helper()
	link = f
	t.Cleanup(func() { link = os.Link })
}

// NewFollower follows a journal.
func NewFollower(dir, name string) *Follower { return &follower{dir: dir, name: name} }

// SealAt is a line as a process with another clock writes it.
func SealAt(l Line, seq int, at time.Time) ([]byte, error) {
	l.Seq, l.Time = seq, at
	return store.Seal(&l)
}

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
