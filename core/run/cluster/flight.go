package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// lease is the content of a lease: who has it. Nonce makes it differ from that of
// any other process, also of one with the same name.
type lease struct {
	Holder string `json:"holder"`
	Nonce  string `json:"nonce"`
}

// claimer takes leases for one process.
type claimer struct {
	root string // the folder of this package
	file string // of this process, without its number
	me   lease
	made int // claims
}

// perFile is how many leases are links to one file: file systems allow some
// 65,000 links.
const perFile = 10_000

// newClaimer makes a claimer; file is the path of a new file, without its ending.
func newClaimer(root, file, holder string) *claimer {
	return &claimer{root: root, file: file, me: lease{Holder: holder, Nonce: rand.Text()}}
}

// own returns the file that leases are links to.
func (c *claimer) own() (string, error) {
	name := fmt.Sprintf("%s.claim-%d", c.file, c.made/perFile)
	if c.made%perFile == 0 {
		if err := put(filepath.Dir(name), filepath.Base(name), &c.me); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return name, nil
}

// errUndecided means that it is not known yet who has a lease: the caller asks
// again later.
var errUndecided = errors.New("the lease cannot be read yet")

// Claim takes the lease of an attempt, and reports whether this process has it.
// What is there decides, and not the answer to the link: the answer may be lost,
// and the file server then reports our own link as taken.
func (c *claimer) Claim(name string) (bool, error) {
	file, err := c.own()
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", name, err)
	}
	linked := link(file, filepath.Join(c.root, leasesDir, name))
	c.made++
	holder, err := holderOf(c.root, name)
	switch {
	case err == nil:
		return holder == c.me, nil
	case linked == nil || errors.Is(linked, fs.ErrExist):
		return false, errUndecided
	default:
		return false, fmt.Errorf("claim %s: %w", name, linked)
	}
}

// link is os.Link, except in tests.
var link = os.Link

// holderOf reads who has a lease.
func holderOf(root, name string) (l lease, err error) {
	b, err := own(root, leasesDir+"/"+name, maxJob)
	if err == nil && (!store.Unseal(b, &l) || !safe.MatchString(l.Holder)) {
		err = fmt.Errorf("lease of %s: it is damaged", name)
	}
	return l, err
}
