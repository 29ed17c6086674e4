package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/berth-eval/berth/environments/internal/hostcheck"
	"github.com/berth-eval/berth/environments/internal/remains"
	"github.com/berth-eval/berth/plugins/environment"
)

// inFlight is how many changes one engine gets at a time. More would make an
// engine slower, because its store has one lock.
const inFlight = 8

// factsAge is how long an engine's facts are cached.
const factsAge = 10 * time.Second

// program is sandboxd in a container.
const program = "/berth/sandboxd"

// cleanTime bounds a removal.
const cleanTime = 30 * time.Second

// Options describe a plugin's engine.
type Options struct {
	Name string // of the plugin
	// Default returns the address to use if the block names none: unix:///path.
	// Its error says what is missing and what to do.
	Default func() (string, error)
	// Dial makes the Engine of an address. It need not connect.
	Dial func(address string) (Engine, error)
	// Help says what to do when an engine does not answer.
	Help func(address string, err error) string
	// Sweep removes what jobs left that have ended; nil: jobs have nothing of their
	// own.
	Sweep func(context.Context) error
}

// Environment is an environment over a container engine. Safe for concurrent
// use.
type Environment struct {
	o      Options
	checks func() []environment.MachineCheck

	mu      sync.Mutex
	engines map[string]*remote      // by address
	boxes   map[string]box          // sandboxes that we made, by id
	uses    map[string]*flock.Flock // of images that this process may use, by their marks
	work    sync.WaitGroup          // what outlives a canceled call
}

var (
	_ environment.Environment = (*Environment)(nil)
	_ environment.Preparer    = (*Environment)(nil)
)

// New returns the environment. It starts nothing.
func New(o Options) *Environment {
	checks := sync.OnceValue(func() []environment.MachineCheck { return hostcheck.Here(os.Getuid()).Checks(hostcheck.All...) })
	return &Environment{o: o, checks: checks, engines: map[string]*remote{}, boxes: map[string]box{}, uses: map[string]*flock.Flock{}}
}

// Close waits for the cleanup after canceled calls.
func (e *Environment) Close() {
	e.work.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.uses {
		_ = f.Close()
	}
	clear(e.uses)
}

// remote is one engine with cached data.
type remote struct {
	Engine
	name    string // of the plugin
	address string
	own     bool // not the default: ids name it
	slots   chan struct{}

	mu    sync.Mutex
	facts Facts
	asked time.Time
	known map[string]Image // by ID, which never changes
	done  map[string]error // what this process pulled, built or loaded: nil, or why it could not be built
}

// at returns the engine of a configuration.
func (e *Environment) at(c Config) (*remote, error) {
	address, usual := c.Socket, ""
	if a, err := e.o.Default(); err == nil {
		usual = a
	} else if address == "" {
		return nil, err
	}
	if address == "" {
		address = usual
	}
	own := address != usual
	path, err := SocketPath(address)
	if err != nil {
		return nil, err
	}
	address = "unix://" + path
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.engines[address]
	if r == nil {
		en, err := e.o.Dial(address)
		if err != nil {
			return nil, err
		}
		r = &remote{Engine: en, name: e.o.Name, address: address, own: own, slots: make(chan struct{}, inFlight), known: map[string]Image{}, done: map[string]error{}}
		e.engines[address] = r
		if own {
			remember(e.o.Name, address)
		}
	}
	return r, nil
}

// Facts returns the engine's facts from a cache.
func (r *remote) Facts(ctx context.Context) (Facts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && time.Since(r.asked) < factsAge {
		return r.facts, nil
	}
	f, err := r.Engine.Facts(ctx)
	if err == nil {
		r.facts, r.asked = f, time.Now()
	}
	return f, err
}

// slot waits until a further change may start.
func (r *remote) slot(ctx context.Context) (func(), error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// id returns the id of a sandbox, from which another process finds its engine.
func (r *remote) id(name string) string {
	if r.own {
		return name + "@" + r.address
	}
	return name
}

// of returns the engine and the name for an id.
func (e *Environment) of(id string) (*remote, string, error) {
	name, address, _ := strings.Cut(id, "@")
	if address != "" && !strings.HasPrefix(address, "unix://") { // an image by digest
		name, address = id, ""
	}
	r, err := e.at(Config{Socket: address})
	return r, name, err
}

// Create makes a sandbox.
func (e *Environment) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	j, err := e.judge(ctx, spec)
	if err != nil {
		return environment.Sandbox{}, err
	}
	if err = j.Refused(); err != nil {
		return environment.Sandbox{}, err
	}
	if !filepath.IsAbs(spec.Control) {
		return environment.Sandbox{}, fmt.Errorf("control folder is %q: an absolute path is needed", spec.Control)
	}
	im, err := e.image(ctx, j, spec.Image, nil)
	if err != nil {
		return environment.Sandbox{}, err
	}
	facts := factsOf(im)
	c := j.container
	c.Name, c.Image, c.Hostname = newName(), im.ID, spec.Hostname
	c.Labels = labels(spec.Labels, spec.Lease)
	c.Workdir = cmp.Or(spec.Workdir, facts.Workdir)
	c.Entrypoint = []string{program}
	c.Mounts = append(c.Mounts, environment.Mount{Source: spec.Control, Target: "/berth"})
	if len(spec.Sidecars)+len(spec.Volumes) > 0 {
		return e.compose(ctx, j, spec, c, facts)
	}
	state, err := e.start(ctx, j.remote, c)
	if err != nil {
		return environment.Sandbox{}, err
	}
	made := environment.Sandbox{ID: j.remote.id(c.Name), PID: state.PID, Granted: j.Granted, Image: facts}
	e.keep(made.ID, c.Image, state, parts{})
	return made, nil
}

// keep records a sandbox that this process made.
func (e *Environment) keep(id, image string, s State, p parts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.boxes[id] = box{pid: s.PID, image: image, parts: p}
}

// ourNames is the beginning of the names of our containers.
const ourNames = "berth-"

// newName is one that nothing else has.
func newName() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return ourNames + hex.EncodeToString(b)
}

// start creates and starts a container. When ctx ends, it returns at once. If
// the engine creates the container anyway, it is removed in the background.
func (e *Environment) start(ctx context.Context, r *remote, c Container) (State, error) {
	free, err := r.slot(ctx)
	if err != nil {
		return State{}, err
	}
	type answer struct {
		state State
		err   error
	}
	done := make(chan answer)
	e.work.Go(func() {
		defer free()
		// If the request were canceled, the engine would continue and create a
		// container that is not on record.
		calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		state, err := run(ctx, calm, r, c)
		if err != nil {
			err = errors.Join(err, r.clean(calm, c.Name))
		}
		select {
		case done <- answer{state, err}:
		case <-ctx.Done(): // the caller has gone
			if err == nil {
				_ = r.clean(calm, c.Name) // gc finds the rest by its labels
			}
		}
	})
	select {
	case a := <-done:
		return a.state, a.err
	case <-ctx.Done():
		return State{}, context.Cause(ctx)
	}
}

// advice is the end of the error of a container that did not start.
const advice = ": berth doctor shows what containers need of this machine"

// run is the engine's part of start; it stops when ctx ends.
func run(ctx, calm context.Context, r *remote, c Container) (State, error) {
	if err := r.Create(calm, c); err != nil {
		if errors.Is(err, ErrAbsent) {
			err = fmt.Errorf("%w: %w", environment.ErrBadImage, err)
		}
		return State{}, fmt.Errorf("%s create: %w", r.name, err)
	}
	if ctx.Err() != nil {
		return State{}, context.Cause(ctx)
	}
	if err := r.Start(calm, c.Name); err != nil {
		return State{}, fmt.Errorf("%s start: %w%s", r.name, err, advice)
	}
	s, err := r.State(calm, c.Name)
	if err != nil {
		return State{}, fmt.Errorf("%s inspect: %w", r.name, err)
	}
	if !s.Running {
		return s, fmt.Errorf("%s start: sandboxd ended at once with exit code %d %s%s", r.name, s.ExitCode, s.Error, advice)
	}
	return s, nil
}

// clean removes a container that may be there.
func (r *remote) clean(ctx context.Context, name string) error {
	if err := r.Remove(ctx, name); err != nil && !errors.Is(err, ErrAbsent) {
		return fmt.Errorf("%s remove: %w", r.name, err)
	}
	return nil
}

// Destroy removes a sandbox.
func (e *Environment) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	if !strings.HasPrefix(id, ourNames) {
		return environment.Remains{}, nil // nothing of ours has such a name
	}
	r, name, err := e.of(id)
	if err != nil {
		return environment.Remains{}, err
	}
	free, err := r.slot(ctx)
	if err != nil {
		return environment.Remains{}, err
	}
	defer free()
	e.mu.Lock()
	b, ours := e.boxes[id]
	e.mu.Unlock()
	p := b.parts
	if !ours { // another process made it, which may have died
		if p, err = r.partsOf(ctx, name); err != nil {
			return environment.Remains{}, err
		}
	}
	left, alive := remains.Of(b.pid)
	if !alive {
		if s, err := r.State(ctx, name); err == nil && s.OOM {
			left.OOMKills = 1 // at least
		}
	}
	p.add(&left)
	if err := r.cleanAll(ctx, name, p); err != nil {
		return left, err
	}
	e.mu.Lock()
	delete(e.boxes, id)
	e.mu.Unlock()
	return left, nil
}

// List returns the ids of sandboxes. Without
// an engine there are none. It removes what jobs left.
func (e *Environment) List(ctx context.Context, owner string) ([]string, error) {
	want := mine()
	if owner != "" {
		want[labelOwner] = owner
	}
	ids := []string{}
	var left error
	if e.o.Sweep != nil {
		left = e.o.Sweep(ctx)
	}
	err := e.everywhere(ctx, func(r *remote) error {
		found, err := r.list(ctx, want)
		if err != nil {
			return err
		}
		ids = append(ids, found...)
		return nil
	})
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(err, left)
}

// listTime is how long an engine may take to list its containers. Podman holds a lock
// while it waits for a container that it creates.
const listTime = time.Minute

func (r *remote) list(ctx context.Context, want map[string]string) ([]string, error) {
	var ids []string
	bounded, cancel := context.WithTimeoutCause(ctx, listTime, fmt.Errorf("no answer within %s: a helper of the engine (conmon) may wait for a runtime that was killed. "+
		"End it (ps -C conmon), and then run berth gc again", listTime))
	defer cancel()
	cs, err := r.Containers(bounded, want)
	if err != nil {
		return nil, fmt.Errorf("%s list: %w", r.name, cmp.Or(context.Cause(bounded), err))
	}
	for _, c := range cs {
		ids = append(ids, r.id(sandboxOf(c)))
	}
	vs, err := r.Volumes(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("%s list volumes: %w", r.name, err)
	}
	for _, v := range vs {
		ids = append(ids, r.id(sandboxOf(v)))
	}
	return ids, nil
}

// box is what is known of a sandbox that this process made.
type box struct {
	pid   int    // of PID 1 in our pid namespace
	image string // ID of what it was made of
	parts parts
}
