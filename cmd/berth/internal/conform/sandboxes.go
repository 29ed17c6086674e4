package conform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/environment/environmenttest"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
)

// sandboxes creates sandboxes for tests of agents, verifiers and surfaces.
type sandboxes struct {
	kit   environmenttest.Subject
	dir   string
	next  atomic.Int64
	boxes sync.Map // address of a shell → *host.Sandbox
}

// shells returns the sandboxes, or nil without an environment that can create
// sandboxes. If the environment refuses to create one on this machine, the
// error wraps ErrRefused.
func (b *bench) shells(ctx context.Context) (*sandboxes, error) {
	if b.sandboxes != nil || b.o.Shells == "" {
		return b.sandboxes, nil
	}
	h, err := plugin.New(plugin.Options{Dirs: b.o.Dirs, Log: b.o.Log})
	if err != nil {
		return nil, err
	}
	b.atEnd = append(b.atEnd, func() error { h.Stop(); return nil })
	env, _, err := h.Environment(ctx, b.o.Shells)
	if errors.Is(err, plugin.ErrUnknown) {
		return nil, nil //nolint:nilnil // no sandboxes: the clauses are skipped
	}
	if err != nil {
		return nil, err
	}
	made := &sandboxes{dir: filepath.Join(b.dir, "l")}
	if err = os.MkdirAll(made.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for sandboxes: %w", err)
	}
	var done func() error
	made.kit, done, err = environmenttest.Subject{
		Environment: env, Spec: environment.Spec{Workdir: "/app"}, Sandboxd: b.o.Sandboxd, Runtime: b.dir,
	}.Start(ctx)
	if errors.Is(err, environment.ErrRefused) {
		return nil, fmt.Errorf("environment %q for the test cannot create a sandbox on this machine: choose another with --environment, or --environment \"\" to skip clauses that need one: %w",
			b.o.Shells, err)
	}
	if err != nil {
		return nil, err
	}
	b.atEnd = append(b.atEnd, done)
	b.sandboxes = made
	return made, nil
}

// shell returns a function that creates a sandbox, which lives as long as its clause,
// and opens a session in it; nil where there are no sandboxes. mounts may be nil.
//
//nolint:contextcheck // a clause has its own context
func (l *sandboxes) shell(grading bool, mounts func(t *conformance.T) []environment.Mount) func(t *conformance.T) (address string, revoke func()) {
	if l == nil {
		return nil
	}
	return func(t *conformance.T) (string, func()) {
		box := l.kit.Fresh(t, func(p *environment.Spec) {
			if mounts != nil {
				p.Mounts = mounts(t)
			}
		}).Core
		n := l.next.Add(1)
		r, err := relay.New(filepath.Join(l.dir, fmt.Sprint("r", n)), relay.Of(box, host.Session{ID: fmt.Sprint("s", n), Dir: "/app", Grading: grading}))
		t.Must("offer a shell", err)
		t.Cleanup(func(ctx context.Context) { _ = r.Shut(ctx) })
		t.Must("offer a shell", r.Open(t.Context()))
		l.boxes.Store(r.Address(), box)
		t.Cleanup(func(context.Context) { l.boxes.Delete(r.Address()) })
		return r.Address(), func() { _ = r.Close(context.WithoutCancel(t.Context())) }
	}
}
