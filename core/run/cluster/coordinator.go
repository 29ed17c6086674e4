package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/core/trial"
)

// Options are the options of a coordinator.
type Options struct {
	Plan     *plan.Plan
	Store    *store.Run // open for writing
	Settings Settings   // without Run and Process, which are set here
	// relay serves pilots; nil: they need none.
	relay *relay
	// Say receives messages about pilots for the user; it may be nil.
	Say func(string)
}

// Coordinator is a run.Executor whose attempts are made by pilots. It is safe for
// concurrent use.
type Coordinator struct {
	o          Options
	root       string
	generation int
	claims     *claimer
	adopted    map[string]int // number of the attempt that continues, by trial
	cancel     context.CancelFunc
	watching   sync.WaitGroup

	mu       sync.Mutex
	journal  *journal
	waiting  map[string]*waiting // by name of the attempt
	pilots   map[string]*pilot
	stopping bool
	quiet    bool  // the user is told nothing for the moment
	usurper  error // another coordinator has taken the run over
}

// waiting is an attempt without a result.
type waiting struct {
	name   string
	job    run.Job
	queued time.Time
	wait   time.Duration // until it was claimed
	by     string        // the pilot that claimed it; empty: none, as far as is known
	sum    string        // of the published result; empty: it is not published
	unread time.Duration // for how long the published result cannot be read
	orphan time.Duration // for how long the holder of its lease has no journal
	last   Running       // the last that was heard of it
	ended  chan end
	over   bool
}

// end is the end of an attempt.
type end struct {
	result record.Result
	err    error
}

// settler is an attempt in the run's own folder.
type settler interface {
	run.Attempt
	Settle(r *record.Result) error
	Took(r *record.Result, queued time.Duration) error
}

var _ settler = (*store.Attempt)(nil)

// Defaults of Settings.
const (
	Beat      = 10 * time.Second
	LostAfter = 60 * time.Second
	Idle      = 5 * time.Minute
)

// New makes a coordinator, and makes it known to pilots. It finds the attempts that
// an earlier one queued and that have no result. The caller closes it.
func New(ctx context.Context, o Options) (*Coordinator, error) {
	s := &o.Settings
	s.LostAfter, s.Idle = cmp.Or(s.LostAfter, LostAfter), cmp.Or(s.Idle, Idle)
	s.Beat = cmp.Or(s.Beat, min(Beat, s.LostAfter/6))
	if o.Say == nil {
		o.Say = func(string) {}
	}
	s.Run, s.Process = o.Store.Manifest.Header.Run, node.Self()
	c := &Coordinator{
		o: o, root: filepath.Join(o.Store.Dir, Dir), waiting: map[string]*waiting{}, pilots: map[string]*pilot{}, adopted: map[string]int{},
	}
	for _, sub := range []string{"", queueDir, leasesDir, pilotsDir, coordinatorsDir, relayDir, "log"} {
		if err := os.Mkdir(filepath.Join(c.root, sub), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("queue: %w", err)
		}
	}
	if err := c.adopt(); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if err := c.begin(); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it also hears how pilots end after a cancel
	c.cancel = cancel
	c.watching.Go(func() { c.watch(ctx) })
	return c, nil
}

// begin makes the journal, reads what pilots said before, and checks that the file
// system has hard links.
func (c *Coordinator) begin() error {
	before, err := newest(c.root)
	for err == nil {
		before++
		file := filepath.Join(c.root, coordinatorsDir, strconv.Itoa(before))
		c.journal, err = createJournal(file+".jsonl", Line{Kind: CoordinatorBegan, Run: &c.o.Settings})
		if err == nil {
			c.generation = before
			c.claims = newClaimer(c.root, file, "coordinator-"+strconv.Itoa(before))
			c.relist()
			c.hear(0, true)
			if _, err = c.claims.own(); err != nil {
				return fmt.Errorf("%w: the file system of the run must have hard links: choose another folder with --runs", err)
			}
			return nil
		}
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return err
}

// newest returns the number of the newest coordinator; 0: there was none.
func newest(root string) (newest int, err error) {
	names, err := list(root, coordinatorsDir, ".jsonl")
	if errors.Is(err, fs.ErrNotExist) { // its first one makes the folder at this moment
		return 0, nil
	}
	for _, name := range names {
		if n, wrong := strconv.Atoi(name); wrong == nil {
			newest = max(newest, n)
		}
	}
	return newest, err
}

// adopt finds the jobs of earlier coordinators. A job whose attempt has a result is
// removed.
func (c *Coordinator) adopt() error {
	names, err := list(c.root, queueDir, ".json")
	if err != nil {
		return err
	}
	index := c.o.Store.Index()
	for _, name := range names {
		var j Job
		b, err := own(c.root, queueDir+"/"+name+".json", maxJob)
		ours := err == nil && store.Unseal(b, &j) && j.Run == c.o.Settings.Run && AttemptName(j.Trial, j.Attempt) == name
		t := index.Trial(j.Trial)
		if !ours || t == nil {
			c.o.Say(fmt.Sprintf("%s in the queue is not a job of this run: it is left alone", name))
			continue
		}
		if goesOn(t, j.Attempt) {
			c.adopted[j.Trial] = j.Attempt
			continue
		}
		if err = os.Remove(filepath.Join(c.root, queueDir, name+".json")); err != nil {
			return err
		}
	}
	return nil
}

// goesOn reports whether an attempt is the last of its trial, and has no result.
func goesOn(t *store.TrialState, number int) bool {
	n := len(t.Attempts)
	return n > 0 && t.Attempts[n-1].Number == number && t.Attempts[n-1].Result == nil
}

// Adopted returns the attempt of a trial that an earlier coordinator queued, and
// that has no result; 0: there is none.
func (c *Coordinator) Adopted(t *plan.Trial) int { return c.adopted[t.ID] }

// Attempt implements run.Executor: it puts the attempt into the queue and waits for
// its result.
func (c *Coordinator) Attempt(ctx context.Context, j run.Job) (record.Result, error) {
	a, ok := j.Attempt.(settler)
	if !ok || j.Origin != nil {
		return record.Result{}, errors.New("pilots make only whole attempts of this run: verify again on this machine")
	}
	j.Places.Try(trial.Working) // pilots limit the other parts, each on its machine
	w := &waiting{name: AttemptName(j.Trial.ID, a.Number()), job: j, queued: time.Now(), ended: make(chan end, 1)}
	defer c.o.relay.release(j.Trial.ID, a.Number()) //nolint:contextcheck // also after a cancel
	if err := c.enqueue(w); err != nil {
		return record.Result{}, fmt.Errorf("queue: %w", err)
	}
	var e end
	select {
	case e = <-w.ended:
	case <-ctx.Done():
		c.Stop(run.Interrupted)
		e = <-w.ended
	}
	if e.err != nil {
		return e.result, e.err
	}
	return e.result, errors.Join(a.Took(&e.result, w.wait), c.unqueue(w.name))
}

// unqueue removes a job whose attempt has a result.
func (c *Coordinator) unqueue(name string) error {
	err := os.Remove(filepath.Join(c.root, queueDir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell(Line{Kind: Settled, Attempt: name})
	return err
}

// enqueue puts an attempt into the queue, unless an earlier coordinator did.
func (c *Coordinator) enqueue(w *waiting) error {
	t := w.job.Trial
	if c.adopted[t.ID] != w.job.Attempt.Number() {
		j := &Job{Version: 1, Run: c.o.Settings.Run, Trial: t.ID, Attempt: w.job.Attempt.Number(), Plan: planDigest(t), Longest: Longest(c.o.Plan, t)}
		if err := put(filepath.Join(c.root, queueDir), w.name+".json", j); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usurper != nil {
		return c.usurper
	}
	c.waiting[w.name] = w
	if c.stopping {
		c.withdraw(w, unclaimed)
		return nil
	}
	c.live(w, record.Event{Type: record.EventPhaseStart, Phase: queued})
	for _, p := range c.pilots { // it may have told of an adopted attempt before
		p.remind(c, w)
	}
	c.tell(Line{Kind: Queued, Attempt: w.name})
	return nil
}

// queued is what live progress says of an attempt that no pilot has taken.
const queued = "queued"

// tell adds a line to the journal. A line that is not written is not an error: pilots
// also list the queue. The caller holds the lock.
func (c *Coordinator) tell(l Line) {
	if c.usurper != nil {
		return
	}
	if err := c.journal.Add(l); err != nil {
		c.o.Say(err.Error())
	}
}

// Stop makes pilots cancel and publish their attempts, and end. Attempts that no
// pilot has are cancelled here.
func (c *Coordinator) Stop(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return
	}
	c.stopping = true
	c.tell(Line{Kind: Stop, Why: why})
	for _, w := range c.waiting {
		c.withdraw(w, unclaimed)
	}
}

// Withdraw cancels an attempt. Fails if a pilot has taken it.
func (c *Coordinator) Withdraw(trial string, attempt int, why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[AttemptName(trial, attempt)]
	if w == nil {
		return errors.New("its attempt is about to be queued, or has ended: try again")
	}
	if c.withdraw(w, unclaimed+": "+why.Error()); !w.over {
		return errors.New("a pilot has taken its attempt, which cannot be cancelled from here any more")
	}
	return nil
}

// unclaimed says why an attempt has no result of a pilot.
const unclaimed = "cancelled before a pilot took it"

// withdraw cancels an attempt unless a pilot has it. The caller holds the lock.
func (c *Coordinator) withdraw(w *waiting, why string) {
	if w.by != "" || w.over {
		return
	}
	if mine, err := c.claims.Claim(w.name); err != nil || !mine {
		return // a pilot was faster: its journal will tell
	}
	r := c.unmade(w, record.Cancelled, why)
	c.settle(w, &r)
}

// settle writes the result of an attempt that no pilot is going to finish. If a
// pilot has published one after all, that is found. The caller holds the lock.
func (c *Coordinator) settle(w *waiting, r *record.Result) {
	a, _ := w.job.Attempt.(settler) //nolint:errcheck // Attempt has checked it
	switch err := a.Settle(r); {
	case errors.Is(err, store.ErrSettled):
		published, unread := store.ReadResult(a.Dir())
		if unread == nil {
			r = published
		}
		c.over(w, end{*r, unread})
	default:
		c.over(w, end{*r, err})
	}
}

// over ends the wait for an attempt. The caller holds the lock.
func (c *Coordinator) over(w *waiting, e end) {
	if w.over {
		return
	}
	w.over = true
	delete(c.waiting, w.name)
	w.ended <- e
}

// unmade is the result of an attempt that has none of a pilot.
func (c *Coordinator) unmade(w *waiting, o record.Outcome, why string) record.Result {
	t, now := w.job.Trial, time.Now().UTC()
	host, _ := os.Hostname() //nolint:errcheck // an unknown host stays unnamed in the record
	phase := w.last.Phase
	if phase == "" {
		phase = record.PhasePrepare
	}
	r := record.Result{
		Version: 1, Run: c.o.Settings.Run, Trial: t.ID, Task: t.Task, TaskDigest: t.TaskDigest, Repetition: t.Repetition,
		Attempt: w.job.Attempt.Number(), Host: host, Berth: c.o.Settings.Berth, Outcome: o, Integrity: record.Unknown,
		Start: now, End: now, Steps: int64(w.last.Steps),
		Error: &record.Error{Boundary: record.ByCore, Phase: phase, Stage: w.last.Stage, Message: why, Retry: o == record.Preempted},
	}
	if cells := c.o.Plan.Experiment.Cells; t.Cell < len(cells) {
		r.Cell = cells[t.Cell].Choices
	}
	if w.by != "" {
		r.Start = w.queued.Add(w.wait).UTC()
		r.Worker = &record.Worker{Pilot: w.by}
		if p := c.pilots[w.by]; p != nil && p.identity != nil {
			*r.Worker = p.identity.Worker
			r.Host = p.identity.Node
		}
	}
	r.Phases = []record.Phase{{Name: phase, Stage: w.last.Stage, Turn: w.last.Turn, Who: record.ByCore, Start: r.Start, End: r.End, Error: why}}
	return r
}

// Close tells pilots that no more attempts come, and stops watching. All calls of
// Attempt have returned.
func (c *Coordinator) Close() error {
	c.cancel()
	c.watching.Wait()
	if c.usurper != nil {
		return c.usurper
	}
	return c.journal.Add(Line{Kind: CoordinatorEnded})
}
