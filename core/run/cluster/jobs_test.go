package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// A job whose file was cut, or that another plan made, is refused, and its attempt
// ends: nobody could take it.
func TestAJobThatCannotBeReadEndsItsAttempt(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	c := b.carry(calm, 3)
	queue := filepath.Join(b.store.Dir, cluster.Dir, "queue")
	job := func(trial int) string {
		return filepath.Join(queue, cluster.AttemptName(b.plan.Trials[trial].ID, 1)+".json")
	}
	for i := range 3 {
		b.until("a job", func() bool { _, err := os.Stat(job(i)); return err == nil })
	}
	whole, err := os.ReadFile(job(0))
	must(t, err)
	must(t, os.Truncate(job(0), int64(len(whole)/2)))
	must(t, os.Remove(job(1)))
	must(t, cluster.Put(queue, filepath.Base(job(1)), &cluster.Job{
		Version: 1, Run: b.store.Manifest.Header.Run, Trial: b.plan.Trials[1].ID, Attempt: 1, Plan: "of other files",
	}))
	b.pilot("one", 1, passes("one"))
	if report := c.wait(t); report.Ran != 5 {
		t.Errorf("%+v", report)
	}
	if !b.heard("the job file is damaged") || !b.heard("another one: its files differ") {
		t.Errorf("said: %q", b.said)
	}
	outcomes, _ := b.attempts()
	if outcomes[record.Passed] != 3 || outcomes[record.Preempted] != 2 {
		t.Errorf("%v", outcomes)
	}
}

// Somebody who can write to the queue puts a job of their own there.
func TestAJobOfAnotherUserIsRefused(t *testing.T) {
	testlevel.Root(t, "be another user")
	t.Parallel()
	b := newBed(t, 2)
	c := b.carry(calm, 1) // the second trial waits for the first
	var made atomic.Bool
	b.pilot("one", 2, fake(func(ctx context.Context, j run.Job) (record.Result, error) {
		if j.Attempt.Number() == 7 {
			made.Store(true)
		} else {
			b.until("the job of the stranger was seen", func() bool { return b.heard("belongs to another user") || made.Load() })
		}
		return passes("one")(ctx, j)
	}))
	theirs := cluster.AttemptName(b.plan.Trials[1].ID, 7) + ".json"
	must(t, os.MkdirAll(b.folder(1, 7), 0o755))
	other := t.TempDir()
	must(t, cluster.Put(other, theirs, &cluster.Job{
		Version: 1, Run: b.store.Manifest.Header.Run, Trial: b.plan.Trials[1].ID, Attempt: 7, Plan: cluster.PlanDigest(&b.plan.Trials[1]),
	}))
	must(t, os.Chown(filepath.Join(other, theirs), 65534, 65534))
	must(t, os.Rename(filepath.Join(other, theirs), filepath.Join(b.store.Dir, cluster.Dir, "queue", theirs)))
	if c.wait(t); made.Load() {
		t.Error("the pilot made an attempt for a stranger")
	}
}

// waits makes an attempt that goes on until it is told to end.
func waits(pilot string, ended record.Outcome, began chan<- string) fake {
	return func(ctx context.Context, j run.Job) (record.Result, error) {
		began <- j.Trial.ID
		<-ctx.Done()
		r := resultOf(j, ended, pilot)
		r.Error = &record.Error{Message: context.Cause(ctx).Error(), Retry: true}
		return r, j.Attempt.Publish(r)
	}
}

// A pilot is told to end: its attempts end as preempted, and another pilot makes
// the next ones, as the retries of the experiment say.
func TestAPreemptedPilotHandsBackWhatItHas(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	c := b.carry(calm, 4)
	began := make(chan string, 4)
	one := b.pilot("one", 2, waits("one", record.Preempted, began))
	<-began
	<-began
	one.stop()
	must(t, <-one.done)
	b.pilot("two", 2, passes("two"))
	if report := c.wait(t); report.Ran != 6 {
		t.Errorf("%+v", report)
	}
	if outcomes, _ := b.attempts(); outcomes[record.Preempted] != 2 || outcomes[record.Passed] != 4 {
		t.Errorf("%v", outcomes)
	}
}

// The limit of the run holds over all pilots, whatever they could make.
func TestTheLimitOfARunHoldsOverAllPilots(t *testing.T) {
	t.Parallel()
	b := newBed(t, 24)
	c := b.carry(calm, 3)
	now := make(chan int, 1)
	now <- 0
	most := 0
	three := make(chan struct{}) // closed once so many were made at the same time
	busy := func(pilot string) fake {
		return func(ctx context.Context, j run.Job) (record.Result, error) {
			n := <-now + 1
			if most = max(most, n); n == 3 {
				select {
				case <-three:
				default:
					close(three)
				}
			}
			now <- n
			select { // a busy machine may be slow to begin three
			case <-three:
			case <-time.After(time.Minute):
			}
			now <- <-now - 1
			return passes(pilot)(ctx, j)
		}
	}
	for _, name := range []string{"one", "two", "three"} {
		b.pilot(name, 8, busy(name))
	}
	c.wait(t)
	if most != 3 {
		t.Errorf("%d attempts at the same time, want 3", most)
	}
}

// A pilot takes no attempt that may take longer than it has left.
func TestAPilotTakesWhatItCanFinish(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	c := b.carry(calm, 1)
	b.until("a coordinator", func() bool {
		_, err := os.Stat(filepath.Join(b.store.Dir, cluster.Dir, "coordinators", "1.claim-0"))
		return err == nil
	})
	queue, name := filepath.Join(b.store.Dir, cluster.Dir, "queue"), cluster.AttemptName(b.plan.Trials[0].ID, 1)+".json"
	b.until("the job", func() bool { _, err := os.Stat(filepath.Join(queue, name)); return err == nil })
	must(t, os.Remove(filepath.Join(queue, name)))
	must(t, cluster.Put(queue, name, &cluster.Job{
		Version: 1, Run: b.store.Manifest.Header.Run, Trial: b.plan.Trials[0].ID, Attempt: 1, Plan: cluster.PlanDigest(&b.plan.Trials[0]), Longest: time.Hour,
	}))
	p, err := cluster.NewPilot(cluster.PilotOptions{
		Dir: b.store.Dir, Plan: b.plan, Say: b.say, Until: time.Now().Add(30 * time.Minute), Idle: 200 * time.Millisecond,
		Identity: cluster.Identity{Worker: record.Worker{Pilot: "short"}, InFlight: 1},
	})
	must(t, err)
	must(t, p.Work(t.Context(), run.NewNode(passes("short"), run.Spec{Plan: b.plan}, t.TempDir())))
	if !b.heard("more than this pilot has left") {
		t.Errorf("said: %q", b.said)
	}
	b.pilot("long", 1, passes("long"))
	c.wait(t)
}

// The shared disk is away from the machine of a pilot, or full, when an attempt ends:
// the pilot keeps its result and tries again.
func TestAResultWaitsForTheSharedDisk(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	b.seen = filepath.Join(t.TempDir(), "run")
	must(t, os.Symlink(b.store.Dir, b.seen))
	c := b.carry(calm, 1)
	one := b.pilot("one", 1, fake(func(ctx context.Context, j run.Job) (record.Result, error) {
		must(t, os.Remove(b.seen))
		r, err := passes("one")(ctx, j)
		if err == nil || errors.Is(err, store.ErrSettled) {
			t.Errorf("published to a disk that is away: %v", err)
		}
		time.AfterFunc(700*time.Millisecond, func() { _ = os.Symlink(b.store.Dir, b.seen) })
		return r, err
	}))
	c.wait(t)
	must(t, <-one.done)
	if outcomes, _ := b.attempts(); !maps.Equal(outcomes, map[record.Outcome]int{record.Passed: 1}) || !b.heard("is not published yet") {
		t.Errorf("%v, said: %q", outcomes, b.said)
	}
}

// A journal is read while it is written: a line that is not whole waits, a torn
// one is skipped, and no line is read twice.
func TestAJournalIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "j.jsonl")
	j, err := cluster.NewTestJournal(file, cluster.Line{Kind: cluster.PilotBegan})
	must(t, err)
	f := cluster.NewFollower(dir, "j.jsonl")
	read := func(passed time.Duration, want ...string) {
		t.Helper()
		lines, readErr := f.Read(passed)
		must(t, readErr)
		var got []string
		for _, l := range lines {
			got = append(got, string(l.Kind)+l.Attempt)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("read %q, want %q", got, want)
		}
	}
	read(0, "pilot_began")
	read(0)
	must(t, j.Add(cluster.Line{Kind: cluster.Claimed, Attempt: "a"}, cluster.Line{Kind: cluster.Claimed, Attempt: "b"}))
	raw, err := cluster.SealAt(cluster.Line{Kind: cluster.Claimed, Attempt: "c"}, 4, time.Now())
	must(t, err)
	add(t, file, raw[:20])
	read(0, "claimeda", "claimedb")
	read(0)
	add(t, file, raw[20:])
	read(0, "claimedc")
	// Zeros where another machine's content is not seen yet, then a torn line.
	add(t, file, append(bytes.Repeat([]byte{0}, 30), '\n'))
	must(t, j.Add(cluster.Line{Kind: cluster.Alive}, cluster.Line{Kind: cluster.Claimed, Attempt: "d"}))
	read(time.Second)
	read(10*time.Second, "claimedd") // numbers 4 and 5 of the journal: the first was given above
	add(t, file, raw)
	read(0)
}

func add(t *testing.T, file string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.Write(b)
	must(t, errors.Join(err, f.Close()))
}
