package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial/outcome"
)

// PilotOptions are the options of a pilot.
type PilotOptions struct {
	Dir      string // of the run
	Identity Identity
	Plan     *plan.Plan
	// Until is when this process has to be done; zero: never. An attempt that
	// cannot end before is not taken.
	Until time.Time
	// Idle replaces that of the coordinator; 0: it does not.
	Idle time.Duration
	// Say receives messages for the user; it may be nil.
	Say func(string)
}

// Pilot takes attempts of a run, until there is nothing more to do.
type Pilot struct {
	o        PilotOptions
	root     string
	journal  *journal
	claims   *claimer
	settings Settings
	relay    atomic.Pointer[uplink.Place] // of the coordinator
	byID     map[string]*plan.Trial

	generation  int // of the coordinator that is followed
	coordinator *follower
	stopped     string // why the run ends; empty: it continues
	over        bool

	open    map[string]int  // attempts in the queue that this pilot may take, with their place in it
	place   int             // the last one
	tried   map[string]bool // attempts that it does not look at again
	mu      sync.Mutex
	running map[string]*flight
	ended   chan *flight

	unsaid []Line    // lines that could not be written yet
	told   time.Time // when the user last heard of trouble
}

// ErrOver means that the run needs no pilots.
var ErrOver = errors.New("the run has ended")

// NewPilot makes the pilot known to the run. Its first line is in its journal when
// the call returns. Fails with ErrOver if the run has ended, and with fs.ErrExist
// in the chain if a pilot of that name was there.
func NewPilot(o PilotOptions) (*Pilot, error) {
	p := &Pilot{
		o: o, root: filepath.Join(o.Dir, Dir), byID: map[string]*plan.Trial{}, open: map[string]int{}, tried: map[string]bool{},
		running: map[string]*flight{}, ended: make(chan *flight),
	}
	if o.Say == nil {
		p.o.Say = func(string) {}
	}
	if !safe.MatchString(o.Identity.Pilot) {
		return nil, fmt.Errorf("pilot %q: a name has letters, digits, '.', '_' and '-', at most 160", o.Identity.Pilot)
	}
	for i := range o.Plan.Trials {
		p.byID[o.Plan.Trials[i].ID] = &o.Plan.Trials[i]
	}
	if err := p.follow(); err != nil {
		return nil, err
	}
	if p.over {
		return nil, ErrOver
	}
	file := filepath.Join(p.root, pilotsDir, o.Identity.Pilot)
	var err error
	if p.journal, err = createJournal(file+".jsonl", Line{Kind: PilotBegan, Pilot: &o.Identity}); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("a pilot with this name was here before: %w", err)
		}
		return nil, fmt.Errorf("pilot %s: %w", o.Identity.Pilot, err)
	}
	p.claims = newClaimer(p.root, file, o.Identity.Pilot)
	return p, nil
}

// Settings are those of the coordinator that the pilot follows.
func (p *Pilot) Settings() Settings { return p.settings }

// InFlight is how many attempts the pilot makes at a time.
func (p *Pilot) InFlight() int { return p.o.Identity.InFlight }

// Leave ends a pilot that did not work, and says why in its journal.
func (p *Pilot) Leave(why string) error {
	return errors.Join(p.giveUpToken(), p.journal.Add(Line{Kind: PilotEnded, Why: why}))
}

// How long a pilot and a coordinator wait before they look again: soon after
// something has happened, and then ever longer.
const (
	soon  = 20 * time.Millisecond
	late  = time.Second
	relax = 1.5
)

// Work makes attempts until the run has ended, nothing came for a while, or ctx
// ends: then attempts end as preempted, and are published.
func (p *Pilot) Work(ctx context.Context, n *run.Node) error {
	attempts, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	why := "interrupted"
	var listed, said, busy time.Time
	wait, last := soon, time.Now()
	busy = last
	over := ctx.Done()
	for {
		now := time.Now()
		if now.Sub(listed) >= p.settings.Beat/2 { // what is new is also told by the journal
			listed = now
			p.trouble(p.relist())
		}
		news, err := p.read(now.Sub(last))
		p.trouble(err)
		last = now
		if p.stopped != "" && ctx.Err() == nil {
			cancel(errors.New(p.stopped))
		}
		if ctx.Err() == nil && p.stopped == "" && p.take(attempts, n) {
			news = true
		}
		if len(p.running) > 0 || news {
			busy = now
		}
		if done, because := p.done(ctx, now.Sub(busy)); done {
			why = because
			break
		}
		if now.Sub(said) >= p.settings.Beat/2 {
			said = now
			p.say(Line{Kind: Alive, Running: p.doing()})
		}
		if wait = min(time.Duration(float64(wait)*relax), late); news && len(p.running) < p.o.Identity.InFlight {
			wait = soon // without room, it need not look often
		}
		select {
		case f := <-p.ended:
			p.end(f)
			wait = soon
		case <-time.After(wait):
		case <-over:
			over = nil
			cancel(outcome.ErrPreempted)
		}
	}
	p.o.Say("ends: " + why)
	return errors.Join(p.giveUpToken(), p.journal.Add(Line{Kind: PilotEnded, Why: why}))
}

// done reports whether there is nothing more to do, and why.
func (p *Pilot) done(ctx context.Context, idle time.Duration) (bool, string) {
	limit := cmp.Or(p.o.Idle, p.settings.Idle)
	switch {
	case len(p.running) > 0:
		return false, ""
	case ctx.Err() != nil:
		return true, "preempted"
	case p.stopped != "":
		return true, p.stopped
	case p.over && len(p.open) == 0:
		return true, "the run has ended"
	case !p.o.Until.IsZero() && time.Now().After(p.o.Until):
		return true, "its time is over"
	case idle >= limit:
		return true, fmt.Sprintf("nothing to do for %s", limit)
	default:
		return false, ""
	}
}

// follow finds the newest coordinator, and reads what it said so far.
func (p *Pilot) follow() error {
	latest, err := newest(p.root)
	if err != nil {
		return fmt.Errorf("%s is not a run with pilots: %w", p.o.Dir, err)
	}
	if latest <= p.generation {
		if p.generation == 0 {
			return fmt.Errorf("%s has no coordinator yet: start it with berth run or berth resume", p.o.Dir)
		}
		return nil
	}
	f := &follower{dir: p.root, name: fmt.Sprintf("%s/%d.jsonl", coordinatorsDir, latest)}
	lines, err := f.Read(0)
	if err == nil && (len(lines) == 0 || lines[0].Run == nil) {
		err = errors.New("it has not said anything yet")
	}
	if err != nil {
		return fmt.Errorf("coordinator %d: %w", latest, err)
	}
	p.generation, p.coordinator, p.settings, p.over = latest, f, *lines[0].Run, false
	p.relay.Store(p.settings.Relay)
	p.hear(lines)
	return nil
}

// relist looks for a newer coordinator, and for jobs that no journal told of.
func (p *Pilot) relist() error {
	if err := p.follow(); err != nil {
		return err
	}
	names, err := list(p.root, queueDir, ".json")
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
		p.offer(name)
	}
	for name := range p.tried { // forget what has left the queue
		if !there[name] {
			delete(p.tried, name)
		}
	}
	return nil
}

// read hears what the coordinator said, and reports whether that was anything.
func (p *Pilot) read(passed time.Duration) (bool, error) {
	lines, err := p.coordinator.Read(passed)
	p.hear(lines)
	return len(lines) > 0, err
}

func (p *Pilot) hear(lines []Line) {
	for _, l := range lines {
		switch l.Kind {
		case Queued:
			p.offer(l.Attempt)
		case Taken:
			p.forget(l.Attempt)
		case Settled:
			delete(p.open, l.Attempt)
			p.mu.Lock()
			if f := p.running[l.Attempt]; f != nil {
				f.cancel(errSettled)
			}
			p.mu.Unlock()
		case Stop:
			p.stopped = l.Why
		case CoordinatorEnded:
			p.over = true
		default:
		}
	}
}

// offer puts an attempt behind those that are known.
func (p *Pilot) offer(name string) {
	if p.tried[name] || p.open[name] > 0 || !safe.MatchString(name) {
		return
	}
	p.place++
	p.open[name] = p.place
}

// take claims and starts attempts while there is room, roughly in the order of the
// queue: pilots should not all ask for the same one. It reports whether it started any.
func (p *Pilot) take(ctx context.Context, n *run.Node) (began bool) {
	names := slices.SortedFunc(maps.Keys(p.open), func(a, b string) int { return p.open[a] - p.open[b] })
	near := names[:min(len(names), 4*p.o.Identity.InFlight)] // those that were queued first, roughly
	rand.Shuffle(len(near), func(i, j int) { near[i], near[j] = near[j], near[i] })
	for _, name := range names {
		if len(p.running) >= p.o.Identity.InFlight {
			return began
		}
		t, job, err := p.job(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has a result by now, or is not seen here yet
			delete(p.open, name)
			continue
		case err != nil:
			p.forget(name)
			p.say(Line{Kind: Refused, Attempt: name, Why: err.Error()})
			p.o.Say(fmt.Sprintf("refused %s: %v", name, err))
			continue
		case !p.o.Until.IsZero() && time.Now().Add(job.Longest).After(p.o.Until):
			p.forget(name)
			p.o.Say(fmt.Sprintf("%s may take %s, which is more than this pilot has left: it is not taken", name, job.Longest))
			continue
		}
		places, leave, ok := n.Start(t)
		if !ok {
			continue
		}
		mine, err := p.claims.Claim(name)
		if errors.Is(err, errUndecided) {
			leave()
			continue // asked again in the next round
		}
		p.forget(name)
		if err != nil || !mine {
			leave()
			p.trouble(err)
			continue
		}
		began = true
		p.begin(ctx, n, run.Job{Trial: t, Places: places}, &flight{Running: Running{Attempt: name, Phase: record.PhasePrepare}, number: job.Attempt, leave: leave})
	}
	return began
}

// forget does not look at a job again.
func (p *Pilot) forget(name string) {
	delete(p.open, name)
	p.tried[name] = true
}

// job reads and checks a job. Fails with fs.ErrNotExist if there is none.
func (p *Pilot) job(name string) (*plan.Trial, *Job, error) {
	b, err := own(p.root, queueDir+"/"+name+".json", maxJob)
	if err != nil {
		return nil, nil, err
	}
	j := &Job{}
	if !store.Unseal(b, j) {
		return nil, nil, errors.New("the job file is damaged")
	}
	t := p.byID[j.Trial]
	switch {
	case j.Version != 1:
		return nil, nil, fmt.Errorf("the job file has version %d, and this berth reads 1", j.Version)
	case j.Run != p.settings.Run || AttemptName(j.Trial, j.Attempt) != name || j.Attempt < 1:
		return nil, nil, errors.New("the job file is of another attempt")
	case t == nil || planDigest(t) != j.Plan:
		return nil, nil, errors.New("the plan that this pilot made has no such trial, or another one: its files differ from those of the coordinator")
	}
	return t, j, nil
}

// planDigest identifies a line of the plan.
func planDigest(t *plan.Trial) string {
	b, err := json.Marshal(&t.Trial)
	if err != nil {
		return "" // matches nothing
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// doing says what the pilot does, for its journal.
func (p *Pilot) doing() []Running {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Running, 0, len(p.running))
	for _, f := range p.running {
		all = append(all, f.Running)
	}
	slices.SortFunc(all, func(a, b Running) int { return strings.Compare(a.Attempt, b.Attempt) })
	return all
}

// say adds a line to the journal. A line that cannot be written now is written
// with a later one.
func (p *Pilot) say(l Line) {
	p.unsaid = append(p.unsaid, l)
	err := p.journal.Add(p.unsaid...)
	if err == nil {
		p.unsaid = nil
	}
	p.trouble(err)
}

// trouble tells the user of something that the pilot survives, but not all the
// time.
func (p *Pilot) trouble(err error) {
	if err == nil || time.Since(p.told) < troubleEvery {
		return
	}
	p.told = time.Now()
	p.o.Say(err.Error())
}

const troubleEvery = 10 * time.Second
