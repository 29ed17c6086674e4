// Package host is the core's end of a surface: it opens the surface of a plugin
// for an attempt, gives each session of an agent an address at which it may act
// on it, checks and records what passes, and takes captures.
//
// It must not know any kind of surface, and must not decide what a broken one
// means for the result.
package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/internal/schema"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/task"
)

// Errors of a surface.
var (
	// ErrLost means that the surface cannot be used any more.
	ErrLost = errors.New("the surface was lost")
	// ErrBreach means, with ErrLost, that the plugin broke the contract in a way
	// that no agent can cause.
	ErrBreach = errors.New("the surface broke its contract")
)

// Options say how a surface is opened.
type Options struct {
	Plugin environment.Surface
	Needs  Needs
	Spec   environment.SurfaceSpec // Open adds folders, the shell and ports
	Dir    string                  // for the folders; the caller removes it
	// Sockets is how the paths of the sockets for the plugin begin, at most 90
	// bytes and in a folder of ours (0700). They lead to a session of the
	// sandbox, and to its ports.
	Sockets string
	Shell   relay.Sandbox
	Dial    func(ctx context.Context, port int) (net.Conn, error)
	Frames  string                // folder of the record for frames; made with the first one
	Mask    func(b []byte) []byte // removes secrets from a frame before it is stored; nil: nothing
	Append  func(surface.Line)    // adds a line to the record
	Now     func() time.Time
}

// Surface is the open surface of an attempt. Safe for concurrent use: calls
// reach the plugin one after the other.
type Surface struct {
	o       Options
	id      string
	limit   time.Duration // of a call
	undo    []func(context.Context) error
	calling chan struct{}   // holds the right to call
	lost    chan struct{}   // closed with err
	stage   *stage          // nil before Begin; under calling
	lines   int             // of the record; under calling
	lose    func(why error) // once

	mu   sync.Mutex
	err  error
	any  bool // an action reached the plugin
	over bool // the steps of the stage are used up
}

// stage is what the agent may do in a stage.
type stage struct {
	name    string
	steps   int64 // 0: no bound
	replies bool  // a step is a reply of the model, with all its actions
	within  int   // actions of the reply so far, if it has more of them; 0: the next action begins a step
	always  []string
	offer   environment.Offer
	schemas map[string]*schema.Schema // by action; nil: it takes no arguments
	count   int64
	ended   string // why there is nothing left to do; empty: there is
	done    bool   // and that the surface said so
}

// newStage compiles what a stage offers.
func newStage(name string, n environment.SurfaceNeeds, asks *task.Surface) (*stage, error) {
	s := &stage{
		name: name, steps: int64(asks.Steps), replies: asks.StepsOf == task.StepsOfReplies, always: n.Pictures, schemas: map[string]*schema.Schema{},
	}
	s.offer.Steps = s.steps
	for _, a := range n.Actions {
		if len(asks.Actions) > 0 && !slices.Contains(asks.Actions, a.Name) {
			continue
		}
		if _, twice := s.schemas[a.Name]; twice || a.Name == "" {
			return nil, fmt.Errorf("%w: it has no name for an action, or two actions with the name %q", ErrBreach, a.Name)
		}
		s.schemas[a.Name] = nil
		if len(a.Schema) > 0 {
			compiled, err := schema.Compile(a.Schema)
			if err != nil {
				return nil, fmt.Errorf("%w: the schema of action %q: %w", ErrBreach, a.Name, err)
			}
			s.schemas[a.Name] = compiled
		}
		s.offer.Actions = append(s.offer.Actions, a)
	}
	for _, k := range n.Observations {
		if len(asks.Observations) == 0 || slices.Contains(asks.Observations, k) {
			s.offer.Observations = append(s.offer.Observations, k)
		}
	}
	return s, nil
}

// Open opens a surface. Close frees it.
func Open(ctx context.Context, o Options) (*Surface, error) {
	s := &Surface{o: o, limit: surface.CallTime, calling: make(chan struct{}, 1), lost: make(chan struct{})}
	var once sync.Once
	s.lose = func(why error) {
		once.Do(func() {
			s.mu.Lock()
			s.err = fmt.Errorf("%w: %w", ErrLost, why)
			s.mu.Unlock()
			close(s.lost)
		})
	}
	if err := s.reach(ctx); err != nil {
		return nil, errors.Join(err, s.leave(ctx))
	}
	bounded, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("it did not open within %s", s.limit))
	defer cancel()
	var err error
	if s.id, err = o.Plugin.OpenSurface(bounded, s.o.Spec); err != nil {
		if bounded.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(bounded), err)
		}
		return nil, errors.Join(fmt.Errorf("open: %w", err), s.leave(ctx))
	}
	return s, nil
}

// Reopen opens the surface again in the plugin, for a sandbox in which everything was
// ended that ran. Doors stay, and Begin follows. Fails with ErrLost.
func (s *Surface) Reopen(ctx context.Context) error {
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	spec := &s.o.Spec
	for _, dir := range []string{spec.Frames, spec.Scratch} {
		if err = errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
			return err
		}
	}
	_, err = call(ctx, s, func(ctx context.Context) (string, error) {
		_ = s.o.Plugin.CloseSurface(ctx, s.id) // what it ran has ended
		var again error
		s.id, again = s.o.Plugin.OpenSurface(ctx, s.o.Spec)
		return s.id, again
	})
	return err
}

// reach gives the plugin its folders and the addresses that it needs.
func (s *Surface) reach(ctx context.Context) error {
	spec := &s.o.Spec
	spec.Frames, spec.Scratch, spec.Ports = filepath.Join(s.o.Dir, "frames"), filepath.Join(s.o.Dir, "scratch"), map[string]string{}
	if err := errors.Join(os.MkdirAll(spec.Frames, 0o700), os.MkdirAll(spec.Scratch, 0o700)); err != nil {
		return err
	}
	for _, n := range s.o.Needs {
		if n.Shell && spec.Shell == "" {
			r, err := relay.New(s.o.Sockets+"s", s.o.Shell)
			if err != nil {
				return err
			}
			s.undo = append(s.undo, r.Shut)
			if err = r.Open(ctx); err != nil {
				return err
			}
			spec.Shell = r.Address()
		}
		for name, port := range n.Ports {
			if spec.Ports[name] != "" {
				continue
			}
			path := s.o.Sockets + strconv.Itoa(len(spec.Ports))
			f, err := Forward(ctx, path, func(ctx context.Context) (net.Conn, error) { return s.o.Dial(ctx, port) })
			if err != nil {
				return err
			}
			s.undo, spec.Ports[name] = append(s.undo, func(context.Context) error { return f.Close() }), "unix:"+path
		}
	}
	return nil
}

// leave removes the addresses of the plugin.
func (s *Surface) leave(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(s.undo) {
		errs = append(errs, f(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// Begin puts the surface into the initial state of a stage. Until the next Begin,
// agents get what the stage allows: nothing, if it has no surface.
func (s *Surface) Begin(ctx context.Context, of *task.Stage, seed int64) error {
	asks := of.Surface
	var st *stage
	if asks != nil {
		var err error
		if st, err = newStage(of.Name, s.o.Needs[of.Name], asks); err != nil {
			return err
		}
	}
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.mu.Lock()
	s.stage, s.over = st, false
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	l := surface.Line{Kind: surface.KindReset, Level: asks.Level, Seed: seed}
	_, err = s.observed(ctx, l, s.limit+s.o.Needs[of.Name].ResetTime, func(ctx context.Context) (environment.Observation, error) {
		return s.o.Plugin.Reset(ctx, s.id, environment.Start{Level: asks.Level, Seed: seed, Want: st.asked(st.offer.Observations)})
	})
	return err
}

// Lost is closed when the surface cannot be used any more.
func (s *Surface) Lost() <-chan struct{} { return s.lost }

// Err returns why the surface cannot be used any more; nil: it can.
func (s *Surface) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Acted reports whether an action of the agent has reached the surface, and was not
// refused because the surface lacks something.
func (s *Surface) Acted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.any
}

// OutOfSteps reports whether the agent has used up the steps of the stage.
func (s *Surface) OutOfSteps() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Close frees the surface. A nil one is free.
func (s *Surface) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.lose(errors.New("it was closed"))
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return errors.Join(s.o.Plugin.CloseSurface(ctx, s.id), s.leave(ctx))
}

// acquire waits for the right to call.
func (s *Surface) acquire(ctx context.Context) (release func(), err error) {
	select {
	case s.calling <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	release = func() { <-s.calling }
	if err := unusable(ctx, s); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// unusable returns why no call may begin: the caller has gone, or the surface.
func unusable(ctx context.Context, s *Surface) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.Err()
}

// call calls the plugin. If ctx does not end before, an error means that the
// surface is lost.
func call[T any](ctx context.Context, s *Surface, f func(context.Context) (T, error)) (T, error) {
	return within(ctx, s, s.limit, f)
}

// within is call with its own limit.
func within[T any](ctx context.Context, s *Surface, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not answer within %s", limit))
	defer cancel()
	v, err := f(bounded)
	switch {
	case err == nil:
		return v, nil
	case ctx.Err() != nil:
		return v, context.Cause(ctx)
	case bounded.Err() != nil:
		err = fmt.Errorf("%w: %w", context.Cause(bounded), err)
	}
	s.lose(err)
	return v, s.Err()
}
