package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// pilot is what a coordinator knows of a pilot.
type pilot struct {
	id       string
	journal  follower
	identity *Identity
	silent   time.Duration // since the last new number, by the watcher's clock, while it watched
	lost     bool
	ended    bool
	told     bool               // the keeper knows that it is gone
	took     bool               // it has claimed an attempt
	why      string             // it ended
	has      map[string]bool    // attempts that it claimed and did not end
	sums     map[string]string  // of results that it published, of attempts that are not awaited yet
	doing    map[string]Running // by the name of the attempt
}

// watch follows the journals of pilots until ctx ends.
func (c *Coordinator) watch(ctx context.Context) {
	var listed time.Time
	var leased time.Duration
	wait, last := soon, time.Now()
	for ctx.Err() == nil {
		now := time.Now()
		// Time in which this process was stopped, or had no processor, is no
		// silence of others.
		passed := min(now.Sub(last), 2*wait+100*time.Millisecond)
		last = now
		if now.Sub(listed) >= c.o.Settings.Beat/4 {
			listed = now
			c.relist()
		}
		news := c.hear(passed, false)
		leased += passed
		if leased >= c.o.Settings.LostAfter/4 {
			leased = 0
			c.lookAtLeases()
		}
		if wait = min(time.Duration(float64(wait)*relax), late); news {
			wait = soon
		}
		wait = max(wait, time.Duration(len(c.pilots))*perPilot)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// perPilot bounds how often the journals of many pilots are read: the time between
// two readings, for each of them.
const perPilot = 5 * time.Millisecond

// relist looks for new pilots, and for a coordinator that took over.
func (c *Coordinator) relist() {
	if newest, err := newest(c.root); err == nil && newest > c.generation {
		c.usurp(newest)
	}
	names, err := list(c.root, pilotsDir, ".jsonl")
	if err != nil {
		c.say("pilots: %v", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range names {
		if c.pilots[id] == nil {
			c.pilots[id] = &pilot{
				id: id, journal: follower{dir: c.root, name: pilotsDir + "/" + id + ".jsonl"}, has: map[string]bool{}, sums: map[string]string{}, doing: map[string]Running{},
			}
		}
	}
}

// usurp ends this coordinator without touching anything: another one has the run.
func (c *Coordinator) usurp(newest int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usurper != nil {
		return
	}
	c.usurper = fmt.Errorf("coordinator %d has taken the run over, and this one, %d, ends: it was counted as gone", newest, c.generation)
	for _, w := range c.waiting {
		c.over(w, end{err: c.usurper})
	}
}

// hear reads what pilots said, and reports whether that was anything.
// What happened before this coordinator began is not told to the user.
func (c *Coordinator) hear(passed time.Duration, before bool) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = before
	defer func() { c.quiet = false }()
	if c.usurper != nil {
		return false
	}
	for _, p := range c.pilots {
		if p.ended {
			continue
		}
		lines, err := p.journal.Read(passed)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && p.silent == 0 {
			c.say("pilot %s: %v", p.id, err)
		}
		if len(lines) == 0 {
			if p.silent += passed; p.silent >= c.o.Settings.LostAfter && !p.lost {
				c.lose(p)
			}
			continue
		}
		news = true
		p.silent = 0
		if p.lost {
			p.lost = false
			c.tell(Line{Kind: PilotBack, Why: p.id})
			c.say("pilot %s is back", p.id)
		}
		for _, l := range lines {
			c.take(p, l)
		}
	}
	for _, w := range c.waiting {
		if w.sum != "" && c.collect(w, passed) {
			news = true
		}
	}
	return news
}

// take takes in a line of a pilot.
func (c *Coordinator) take(p *pilot, l Line) {
	w := c.waiting[l.Attempt]
	switch l.Kind {
	case PilotBegan:
		if l.Pilot == nil || l.Pilot.Pilot != p.id {
			return
		}
		p.identity = l.Pilot
		c.say("pilot %s began on %s, with %d attempts at a time", p.id, l.Pilot.Node, l.Pilot.InFlight)
	case Claimed:
		p.has[l.Attempt], p.took = true, true
		if w != nil {
			c.claimed(w, p)
		}
	case Alive:
		c.progress(p, l.Running)
	case Published:
		delete(p.has, l.Attempt)
		if w == nil {
			p.sums[l.Attempt] = l.Sum
		} else {
			c.claimed(w, p)
			w.sum = l.Sum
		}
	case Discarded:
		delete(p.has, l.Attempt)
		c.say("pilot %s: %s: %s", p.id, l.Attempt, l.Why)
	case Refused:
		c.say("pilot %s refused %s: %s", p.id, l.Attempt, l.Why)
		if w != nil {
			c.refused(w, p, l.Why)
		}
	case Troubled:
		delete(p.has, l.Attempt)
		if w == nil {
			c.say("pilot %s: %s", p.id, l.Why)
		}
		if w != nil && w.by == p.id {
			c.end(w, fmt.Sprintf("the attempt could not be written: %s", l.Why))
		}
	case PilotEnded:
		p.ended, p.why = true, l.Why
		c.say("pilot %s ended: %s", p.id, l.Why)
		c.abandon(p, fmt.Sprintf("pilot %s ended (%s) before it published the attempt", p.id, l.Why))
	default:
	}
}

// claimed notes who makes an attempt.
func (c *Coordinator) claimed(w *waiting, p *pilot) {
	if w.by != "" {
		return
	}
	w.by, w.wait = p.id, time.Since(w.queued)
	c.tell(Line{Kind: Taken, Attempt: w.name})
	c.live(w, record.Event{Type: record.EventPhaseStart, Phase: record.PhasePrepare})
}

// live passes on an event of an attempt, with the machine that makes it.
func (c *Coordinator) live(w *waiting, e record.Event) {
	if w.job.Live == nil {
		return
	}
	e.Time = time.Now().UTC()
	if p := c.pilots[w.by]; p != nil && p.identity != nil {
		e.Text = p.identity.Node
	}
	w.job.Live(e)
}

// remind tells an attempt what a pilot has said about it.
func (p *pilot) remind(c *Coordinator, w *waiting) {
	sum, published := p.sums[w.name]
	if p.has[w.name] || published {
		c.claimed(w, p)
		w.sum = sum
		if p.lost || p.ended && !published {
			c.end(w, fmt.Sprintf("pilot %s is gone", p.id))
		}
	}
}

// progress passes on what a pilot does.
func (c *Coordinator) progress(p *pilot, doing []Running) {
	for _, r := range doing {
		w, before := c.waiting[r.Attempt], p.doing[r.Attempt]
		if w == nil || before == r {
			continue
		}
		p.doing[r.Attempt], w.last = r, r
		c.claimed(w, p)
		if r.Phase != before.Phase || r.Stage != before.Stage || r.Turn != before.Turn {
			c.live(w, record.Event{Type: record.EventPhaseStart, Phase: r.Phase, Stage: r.Stage, Turn: r.Turn})
		}
		for range r.Steps - before.Steps {
			c.live(w, record.Event{Type: record.EventStep})
		}
	}
	for name := range p.doing {
		if !slices.ContainsFunc(doing, func(r Running) bool { return r.Attempt == name }) {
			delete(p.doing, name)
		}
	}
}

// collect reads a published result, and reports whether it is there. It may be seen
// here later than the line that tells of it.
func (c *Coordinator) collect(w *waiting, passed time.Duration) bool {
	r, err := store.ReadResult(w.job.Attempt.Dir())
	if sum, _ := store.SumOf(filepath.Join(w.job.Attempt.Dir(), record.ResultFile)); err == nil && sum == w.sum {
		c.over(w, end{result: *r})
		return true
	}
	if w.unread += passed; w.unread < 5*c.o.Settings.LostAfter {
		return false
	}
	if err == nil {
		err = fmt.Errorf("it is not the one that pilot %s published", w.by)
	}
	c.over(w, end{err: fmt.Errorf("%s was published, and its result cannot be read: %w", w.name, err)})
	return true
}

// refused settles an attempt whose job a pilot cannot use, unless another pilot has
// taken it: it would wait forever.
func (c *Coordinator) refused(w *waiting, p *pilot, why string) {
	if w.by != "" {
		return
	}
	if mine, err := c.claims.Claim(w.name); err != nil || !mine {
		return
	}
	r := c.unmade(w, record.Preempted, fmt.Sprintf("pilot %s refused the job: %s", p.id, why))
	c.settle(w, &r)
}

// lose ends the attempts of a pilot that has not said anything for too long.
func (c *Coordinator) lose(p *pilot) {
	p.lost = true
	c.tell(Line{Kind: PilotLost, Why: p.id})
	c.say("pilot %s is lost: it has said nothing for %s", p.id, c.o.Settings.LostAfter)
	c.abandon(p, fmt.Sprintf("pilot %s has said nothing for %s, and its work is lost", p.id, c.o.Settings.LostAfter))
}

// abandon ends the attempts that a pilot has and is not going to publish.
func (c *Coordinator) abandon(p *pilot, why string) {
	for _, w := range c.waiting {
		if w.by == p.id && w.sum == "" {
			c.end(w, why)
		}
	}
}

// end settles an attempt whose pilot does not.
func (c *Coordinator) end(w *waiting, why string) {
	r := c.unmade(w, record.Preempted, why)
	if r.Worker != nil {
		r.Worker.Lost = "worker"
	}
	c.settle(w, &r)
}

// lookAtLeases finds attempts whose pilot took the lease and could not say so in
// its journal.
func (c *Coordinator) lookAtLeases() {
	c.mu.Lock()
	untaken := 0
	for _, w := range c.waiting {
		if w.by == "" {
			untaken++
			if c.stopping {
				c.withdraw(w, unclaimed)
			}
		}
	}
	c.mu.Unlock()
	if untaken == 0 {
		return
	}
	names, err := list(c.root, leasesDir, "")
	if err != nil {
		c.say("leases: %v", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		w := c.waiting[name]
		if w == nil || w.by != "" {
			continue
		}
		holder, err := holderOf(c.root, name)
		if err != nil {
			c.say("%v", err)
			continue
		}
		p := c.pilots[holder.Holder]
		switch {
		case holder == c.claims.me: // of a claim whose answer was late
			r := c.unmade(w, record.Preempted, "no pilot took the attempt")
			c.settle(w, &r)
		case p == nil: // a list of pilots may be old
			if w.orphan += c.o.Settings.LostAfter / 4; w.orphan >= 2*c.o.Settings.LostAfter {
				w.by = holder.Holder
				c.end(w, fmt.Sprintf("pilot %s has the lease and no journal", holder.Holder))
			}
		case p.lost || p.ended:
			c.claimed(w, p)
			c.end(w, fmt.Sprintf("pilot %s took the lease and is gone", p.id))
		default:
			c.claimed(w, p)
		}
	}
}

// say gives the user a message.
func (c *Coordinator) say(format string, args ...any) {
	if !c.quiet {
		c.o.Say(fmt.Sprintf(format, args...))
	}
}
