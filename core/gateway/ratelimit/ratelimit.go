// Package ratelimit decides how many requests may be in flight at one provider
// with one key and model, for all attempts together: one more after each round
// of successes, half as many when the provider limits requests, and none at all
// while the provider says so.
//
// It must not know what a request is, or send one.
package ratelimit

import (
	"cmp"
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"
)

// Result is the result of a request.
type Result int

// The results.
const (
	Served  Result = iota // the provider answered, with any answer
	Limited               // the provider limited the request
	Failed                // it could not answer
	Nothing               // says nothing about the provider: the client went away
)

// Options are the options of a limiter. The zero value means the defaults.
type Options struct {
	// Max is the largest number of requests in flight; 0: 256. If it is set, it
	// is also the initial limit.
	Max int
	// GiveUpAfter is how long a provider may fail without a success before the
	// limiter gives up; 0: 10 minutes.
	GiveUpAfter time.Duration
	// First and Longest are the waits after failures, doubled from First to
	// Longest if the provider does not say how long to wait; 0: 1 s and 60 s.
	First, Longest time.Duration
	// Tell is called when a request has failed, once for all requests that
	// began under the same limit, and when the limit has recovered; nil: no
	// calls. It must not block.
	Tell func(State)
}

// The default initial and largest limits.
const (
	usualStart = 16
	usualMax   = 256
)

// State is the state of a limiter.
type State struct {
	Limit   int           // requests that may be in flight
	Pause   time.Duration // until the next may begin; 0: now
	Failing time.Duration // since the first failure after the last success; 0: it serves
	Left    time.Duration // until the limiter gives up, while the provider fails
	Result  Result        // of the last request
	Why     string        // it was not served; empty: it was served
}

// Limiter limits the requests to one provider. It is safe for concurrent use.
type Limiter struct {
	o Options

	mu       sync.Mutex
	changed  chan struct{}
	limit    float64
	before   float64 // the limit before it fell; 0: it has recovered
	inFlight int
	epoch    int // of the limit: failures count once for all requests that began under it
	fails    int // epochs without a success
	until    time.Time
	asked    time.Time // until when the provider asked to wait; zero: it did not say
	since    time.Time // of the first failure after the last success
	last     Result    // of the last request
	why      string    // it was not served; empty: it was served
}

// New makes a limiter.
func New(o Options) *Limiter {
	limit := float64(cmp.Or(o.Max, usualStart))
	o.Max, o.GiveUpAfter = cmp.Or(o.Max, usualMax), cmp.Or(o.GiveUpAfter, 10*time.Minute)
	o.First, o.Longest = cmp.Or(o.First, time.Second), cmp.Or(o.Longest, time.Minute)
	return &Limiter{o: o, changed: make(chan struct{}), limit: limit}
}

// Turn is the permission for one request.
type Turn struct {
	p     *Limiter
	epoch int
	once  sync.Once
}

// Any waits until a request may begin at one of several limiters, and returns
// its index. The first in order is preferred. The caller must call Done on the
// turn. Fails only with the cause of ctx.
func Any(ctx context.Context, of ...*Limiter) (int, *Turn, error) {
	for {
		if ctx.Err() != nil {
			return 0, nil, context.Cause(ctx)
		}
		cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
		least := time.Duration(0)
		for i, p := range of {
			turn, changed, pause := p.try()
			if turn != nil {
				return i, turn, nil
			}
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(changed)})
			if pause > 0 && (least == 0 || pause < least) {
				least = pause
			}
		}
		if least > 0 {
			// Waiting requests must not all begin at the same time.
			t := time.NewTimer(least + rand.N(least/10+time.Millisecond)) //nolint:gosec // a wait is not a secret
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(t.C)})
			reflect.Select(cases)
			t.Stop()
		} else {
			reflect.Select(cases)
		}
	}
}

// try lets a request begin if it may. Otherwise it returns a channel that is
// closed at the next change, and how long nothing may begin.
func (p *Limiter) try() (*Turn, <-chan struct{}, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := time.Until(p.until)
	if pause <= 0 && p.inFlight < int(p.limit) {
		p.inFlight++
		return &Turn{p: p, epoch: p.epoch}, nil, 0
	}
	return nil, p.changed, max(0, pause)
}

// Done reports the result of the request. after is how long the provider asks
// to wait; 0: not given. why is for messages, and empty when the request was
// served. Later calls do nothing.
func (t *Turn) Done(r Result, after time.Duration, why string) {
	t.once.Do(func() { t.p.done(t.epoch, r, after, why) })
}

func (p *Limiter) done(epoch int, r Result, after time.Duration, why string) {
	p.mu.Lock()
	p.inFlight--
	if r != Nothing {
		p.last, p.why = r, why
	}
	tell := false
	switch r {
	case Served:
		p.fails, p.since = 0, time.Time{}
		p.limit = min(float64(p.o.Max), p.limit+1/p.limit)
		if p.before > 0 && p.limit >= p.before {
			p.before, tell = 0, true
		}
	case Limited, Failed:
		tell = p.failed(epoch, r, after)
	case Nothing:
	}
	close(p.changed)
	p.changed = make(chan struct{})
	state := p.state()
	p.mu.Unlock()
	if tell && p.o.Tell != nil {
		p.o.Tell(state)
	}
}

// failed lowers the limit, once for all requests that began under it.
func (p *Limiter) failed(epoch int, r Result, after time.Duration) bool {
	now := time.Now()
	if p.since.IsZero() {
		p.since = now
	}
	if after > 0 && now.Add(after).After(p.asked) {
		p.asked = now.Add(after)
	}
	fresh := epoch == p.epoch
	if fresh {
		p.epoch++
		if r == Limited {
			p.before = max(p.before, p.limit)
			p.limit = max(1, p.limit/2)
		}
		if after <= 0 {
			wait := min(p.o.Longest, p.o.First<<min(p.fails, 16))
			after = wait/2 + rand.N(wait/2+1) //nolint:gosec // a wait is not a secret
		}
		p.fails++
	}
	if until := now.Add(after); after > 0 && until.After(p.until) {
		p.until = until
	}
	return fresh
}

// GivenUp reports whether the provider has failed for longer than GiveUpAfter, or
// asks to wait for longer.
func (p *Limiter) GivenUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.since.IsZero() && (time.Since(p.since) > p.o.GiveUpAfter || p.beyond() > 0)
}

// Beyond returns how long the provider asks to wait, if the limiter gives up
// before; otherwise 0.
func (p *Limiter) Beyond() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.beyond()
}

func (p *Limiter) beyond() time.Duration {
	if p.since.IsZero() || !p.asked.After(p.since.Add(p.o.GiveUpAfter)) {
		return 0
	}
	return max(0, time.Until(p.asked))
}

// State returns the current state.
func (p *Limiter) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state()
}

func (p *Limiter) state() State {
	s := State{
		Limit: int(p.limit), Pause: max(0, time.Until(p.until)), Result: p.last, Why: p.why,
	}
	if !p.since.IsZero() {
		s.Failing = time.Since(p.since)
		s.Left = max(0, p.o.GiveUpAfter-s.Failing)
	}
	return s
}
