package conform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/environment/environmenttest"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
)

// sandboxes creates sandboxes for tests of agents and verifiers.
type sandboxes struct {
	host     *plugin.Host
	env      environment.Environment
	dir      string
	sandboxd string
	next     atomic.Int64
	boxes    sync.Map // address of a shell → *host.Sandbox
}

// order says what a sandbox is for.
type order struct {
	grading bool // for a verifier
	mounts  []environment.Mount
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
	env, _, err := h.Environment(ctx, b.o.Shells)
	if err != nil {
		h.Stop()
		if errors.Is(err, plugin.ErrUnknown) {
			return nil, nil //nolint:nilnil // no sandboxes: the clauses are skipped
		}
		return nil, err
	}
	if err = refused(ctx, env); err != nil {
		h.Stop()
		return nil, fmt.Errorf("environment %q for the test cannot create a sandbox on this machine: choose another with --shells, or --shells \"\" to skip clauses that need one: %w",
			b.o.Shells, err)
	}
	dir := filepath.Join(b.dir, "l")
	if err = os.Mkdir(dir, 0o700); err != nil {
		h.Stop()
		return nil, fmt.Errorf("make a folder for sandboxes: %w", err)
	}
	binary, _, err := host.Install(filepath.Join(dir, "bin"), b.o.Sandboxd)
	if err != nil {
		h.Stop()
		return nil, err
	}
	b.sandboxes = &sandboxes{host: h, env: env, dir: dir, sandboxd: binary}
	return b.sandboxes, nil
}

// least returns the base of every sandbox of the sandboxes.
func least() environment.Spec {
	return environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}, Workdir: "/app", Lease: time.Minute}
}

// refused returns why env cannot create a sandbox for the sandboxes, or nil.
func refused(within context.Context, env environment.Environment) error {
	ctx, cancel := context.WithTimeout(within, conformance.Patience(10*time.Second))
	defer cancel()
	report, err := env.Check(ctx, least())
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if err = report.Err(); err != nil {
		return err
	}
	return environmenttest.Prepare(within, env, least())
}

func (l *sandboxes) close() error {
	l.host.Stop()
	return nil
}

// shell creates a sandbox that lives as long as t, and opens a session in it.
func (l *sandboxes) shell(ctx context.Context, t *conformance.T, o order) (address string, revoke func()) {
	n := strconv.FormatInt(l.next.Add(1), 10)
	folder, err := host.NewFolder(filepath.Join(l.dir, "c"+n), l.sandboxd)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	scratch := filepath.Join(l.dir, "s"+n)
	if err = os.Mkdir(scratch, 0o700); err != nil {
		t.Fatalf("%v", err)
	}
	spec := least()
	spec.Labels = environment.Labels{Owner: "test-" + filepath.Base(filepath.Dir(l.dir)), Trial: n, Attempt: 1}
	spec.Mounts, spec.Control, spec.Scratch = o.mounts, folder.Path, scratch
	made, err := l.env.Create(ctx, spec)
	if err != nil {
		t.Fatalf("create a sandbox for the test: %v", err)
	}
	cleanup := context.WithoutCancel(ctx)
	t.Cleanup(func() { _, _ = l.env.Destroy(cleanup, made.ID) })
	box, err := host.Connect(ctx, folder, made.PID, time.Minute)
	if err != nil {
		t.Fatalf("connect to a sandbox for the test: %v", err)
	}
	t.Cleanup(func() { _ = box.Close() })
	r, err := relay.New(filepath.Join(l.dir, "r"+n), relay.Of(box, host.Session{ID: "s" + n, Dir: "/app", Grading: o.grading}))
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = r.Shut(cleanup) })
	if err = r.Open(ctx); err != nil {
		t.Fatalf("%v", err)
	}
	l.boxes.Store(r.Address(), box)
	t.Cleanup(func() { l.boxes.Delete(r.Address()) })
	return r.Address(), func() { _ = r.Close(cleanup) }
}
