package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

// flight is an attempt that this pilot makes.
type flight struct {
	Running

	number int
	cancel context.CancelCauseFunc
	leave  func()
	staged *store.Staged
	err    error // the result could not be published
}

// errSettled cancels an attempt that has a result of another writer.
var errSettled = errors.New("the attempt counts as lost")

// begin starts an attempt that this pilot has the lease of.
func (p *Pilot) begin(ctx context.Context, n *run.Node, j run.Job, f *flight) {
	to, name := filepath.Join(p.o.Dir, store.TrialsDir, filepath.FromSlash(j.Trial.Dir), store.AttemptDir(f.number)), f.Attempt
	ctx, f.cancel = context.WithCancelCause(ctx)
	p.mu.Lock()
	p.running[name] = f
	p.mu.Unlock()
	p.say(Line{Kind: Claimed, Attempt: name})
	j.Live = func(e record.Event) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e.Type {
		case record.EventPhaseStart:
			f.Phase, f.Stage, f.Turn = e.Phase, e.Stage, e.Turn
		case record.EventStep:
			f.Steps++
		default:
		}
	}
	go func() {
		if f.staged, f.err = store.Stage(filepath.Join(n.Scratch, name), to, p.o.Identity.Pilot, f.number); f.err == nil {
			j.Attempt = f.staged
			_, f.err = n.Attempt(ctx, j)
		}
		f.err = p.publish(ctx, f)
		p.ended <- f
	}()
}

// Waits between two tries to publish, and how long they continue after the process
// was told to end.
const (
	firstTry = 500 * time.Millisecond
	lastTry  = 30 * time.Second
)

// publish tries again until the result is in the run, or belongs to another user:
// the shared disk may be full or away for a while.
func (p *Pilot) publish(ctx context.Context, f *flight) error {
	if f.staged == nil {
		return f.err
	}
	told := false
	for wait := firstTry; f.err != nil && !errors.Is(f.err, store.ErrSettled); wait = min(2*wait, lastTry) {
		if _, err := f.staged.Sum(); err != nil {
			return f.err // there is no result that could be published
		}
		if !told {
			told = true
			p.o.Say(fmt.Sprintf("%s is not published yet: %v", f.Attempt, f.err))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if wait == lastTry {
				return f.err
			}
			time.Sleep(min(wait, time.Second)) // the last tries of a process that ends
		}
		f.err = f.staged.Copy()
	}
	return f.err
}

// end records the end of an attempt.
func (p *Pilot) end(f *flight) {
	p.mu.Lock()
	delete(p.running, f.Attempt)
	p.mu.Unlock()
	f.cancel(nil)
	f.leave()
	switch {
	case errors.Is(f.err, store.ErrSettled):
		p.say(Line{Kind: Discarded, Attempt: f.Attempt, Why: "another result was there first: this pilot was counted as lost, or the run continued without it"})
		p.o.Say(f.Attempt + ": another result was there first, and this one was thrown away")
	case f.err != nil:
		p.say(Line{Kind: Troubled, Attempt: f.Attempt, Why: f.err.Error()})
		p.o.Say(fmt.Sprintf("%s: %v", f.Attempt, f.err))
	default:
		sum, err := f.staged.Sum()
		p.trouble(err)
		p.say(Line{Kind: Published, Attempt: f.Attempt, Sum: sum})
	}
	if f.staged != nil {
		p.trouble(f.staged.Remove())
	}
}
