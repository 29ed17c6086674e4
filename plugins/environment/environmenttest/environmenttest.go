// Package environmenttest is the conformance kit of environments: what every
// environment must do, whatever it makes its sandboxes of, in process and
// through a built plugin.
//
// It must not know any engine. It plays the core's part with package host and
// tries each promise on real sandboxes, with nothing but a POSIX shell and the
// usual small programs inside.
package environmenttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// Subject is an environment under test.
type Subject struct {
	Environment environment.Environment
	// Capabilities are those that the plugin announces.
	Capabilities []string
	// Spec is what sandboxes are asked for: an image with a POSIX shell, and
	// what else the environment cannot do without. The kit sets labels, control
	// folder and lease.
	Spec environment.Spec
	// Sandboxd is the path of the binary that goes into control folders.
	Sandboxd string
	// Runtime is a folder on node-local disk, not noexec, with a short path, in
	// which the kit makes its own; empty: the system's for temporary files.
	Runtime string

	kit *kit
}

// Run tries every clause, one subtest each. Call it from the plugin's own
// tests, once in process and once through the built binary:
//
//	environmenttest.Run(t, environmenttest.Subject{Environment: mybox.New(), Spec: spec, Sandboxd: path})
func Run(t *testing.T, s Subject) {
	t.Helper()
	s, done, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := done(); err != nil {
			t.Error(err)
		}
	}()
	conformance.Test(t, s, Clauses())
}

// Clauses are all clauses of the kit, in the order in which they are tried. The
// subject must come from Start.
func Clauses() []conformance.Clause[Subject] {
	return slices.Concat(lifeClauses, placeClauses, commandClauses, fileClauses, wallClauses, coreClauses, limitClauses, sidecarClauses, abilityClauses)
}

// kit is what the clauses of one trial share.
type kit struct {
	owner   string // label of all that the kit makes
	folder  string // 0700
	binary  string
	counter atomic.Int64

	mu     sync.Mutex
	shared *box
	lent   *box
}

// Start makes what the clauses share. done removes it, and every sandbox that
// the environment still has of it. An environment whose Check refuses what the
// clauses ask for at least, or which cannot have the image of their sandboxes,
// cannot be tried on this machine: one error, which wraps
// environment.ErrRefused, instead of one for each clause.
func (s Subject) Start(ctx context.Context) (_ Subject, done func() error, err error) {
	base := s.Runtime
	if base == "" {
		base = os.TempDir()
	}
	dir, err := os.MkdirTemp(base, "bk") // short: it is part of a socket's path
	if err != nil {
		return s, nil, fmt.Errorf("make a folder for the kit: %w", err)
	}
	binary, _, err := host.Install(filepath.Join(dir, "bin"), s.Sandboxd)
	if err != nil {
		return s, nil, fmt.Errorf("install sandboxd for the kit: %w", err)
	}
	s.kit = &kit{owner: "kit-" + filepath.Base(dir), folder: dir, binary: binary}
	if err = s.refused(ctx); err == nil {
		err = Prepare(ctx, s.Environment, s.Spec)
	}
	if err != nil {
		return s, nil, joined(err, os.RemoveAll(dir))
	}
	return s, func() error { return s.finish(ctx, dir) }, nil
}

// refused is the first refusal of what the clauses ask for at least; nil when
// there is none. A Check that fails or hangs is left to its clauses.
func (s *Subject) refused(ctx context.Context) error {
	spec, folder, err := s.spec(nil)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	ctx, cancel := context.WithTimeout(ctx, conformance.Patience(10*time.Second))
	defer cancel()
	report, err := s.Environment.Check(ctx, spec)
	if err != nil {
		return nil //nolint:nilerr // a clause says so
	}
	return report.Err()
}

// prepareTime is the longest that the image of the clauses' sandboxes may take.
const prepareTime = 15 * time.Minute

// Prepare has the image of spec ready, if environments of this kind have
// images. Its error wraps environment.ErrRefused: without an image there is no
// sandbox to try anything in.
func Prepare(ctx context.Context, e environment.Environment, spec environment.Spec) error {
	p, ok := e.(environment.Preparer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	_, err := p.Prepare(ctx, spec.Image, spec.Config, nil)
	if err == nil || errors.Is(err, environment.ErrUnsupported) {
		return nil
	}
	which := "the environment's own"
	if spec.Image.Ref != "" {
		which = strconv.Quote(spec.Image.Ref)
	}
	return refusal{fmt.Errorf("the image of its sandboxes (%s) cannot be had: %w: connect this machine to the registry, or name an image that it has (--image of `berth plugin test`)",
		which, err)}
}

// refusal is environment.ErrRefused in words of its own.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (refusal) Is(target error) bool { return target == environment.ErrRefused }

// finish destroys what is left of the kit's sandboxes.
func (s Subject) finish(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), conformance.Patience(30*time.Second))
	defer cancel()
	ids, err := s.Environment.List(ctx, s.kit.owner)
	for _, id := range ids {
		if _, e := s.Environment.Destroy(ctx, id); e != nil && err == nil {
			err = fmt.Errorf("destroy %s at the end of the kit: %w", id, e)
		}
	}
	if e := os.RemoveAll(dir); e != nil && err == nil {
		err = fmt.Errorf("remove the folder of the kit: %w", e)
	}
	return err
}

// box is one sandbox as the kit's core sees it.
type box struct {
	environment.Sandbox
	core   *host.Sandbox
	folder *host.Folder
	s      *Subject
}

// spec is the subject's with labels, control folder and lease of its own.
func (s *Subject) spec(change func(*environment.Spec)) (environment.Spec, *host.Folder, error) {
	n := s.kit.counter.Add(1)
	f, err := host.NewFolder(filepath.Join(s.kit.folder, fmt.Sprint("c", n)), s.kit.binary)
	if err != nil {
		return environment.Spec{}, nil, err
	}
	spec := s.Spec
	spec.Labels = environment.Labels{Owner: s.kit.owner, Trial: fmt.Sprint("clause-", n), Attempt: 1}
	spec.Control, spec.Lease = f.Path, time.Minute
	if spec.Network.Mode == "" {
		spec.Network.Mode = environment.NetworkNone
	}
	spec.Scratch = filepath.Join(s.kit.folder, fmt.Sprint("s", n))
	if err := os.Mkdir(spec.Scratch, 0o700); err != nil {
		return spec, f, err
	}
	if change != nil {
		change(&spec)
	}
	return spec, f, nil
}

// create makes a sandbox and connects to it.
func (s *Subject) create(ctx context.Context, change func(*environment.Spec)) (*box, error) {
	spec, folder, err := s.spec(change)
	if err != nil {
		return nil, err
	}
	made, err := s.Environment.Create(ctx, spec)
	if err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("create: %w", err)
	}
	b := &box{Sandbox: made, folder: folder, s: s}
	if made.Stream != "" {
		err = fmt.Errorf("the kit reaches sandboxes by their control folder, and this one offers a stream")
	} else {
		b.core, err = host.Connect(ctx, folder, made.PID, spec.Lease)
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", joined(err, b.destroy(context.WithoutCancel(ctx))))
	}
	return b, nil
}

func joined(err, other error) error {
	if other != nil {
		return fmt.Errorf("%w; and then %w", err, other)
	}
	return err
}

// destroy ends the sandbox and frees the kit's part of it.
func (b *box) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, conformance.Patience(20*time.Second))
	defer cancel()
	_, err := b.s.Environment.Destroy(ctx, b.ID)
	if b.core != nil {
		_ = b.core.Close()
	}
	_ = b.folder.Close()
	return err
}

// fresh is a sandbox of the clause's own.
func (s *Subject) fresh(ctx context.Context, t *conformance.T, change func(*environment.Spec)) *box {
	b, err := s.create(ctx, change)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := b.destroy(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return b
}

// borrowed is a sandbox that no other clause uses at the time, and in which
// nothing runs: that of the clause before, with everything in it killed.
func (s *Subject) borrowed(ctx context.Context, t *conformance.T) *box {
	s.kit.mu.Lock()
	b := s.kit.lent
	s.kit.lent = nil
	s.kit.mu.Unlock()
	if b != nil && b.core.Err() != nil {
		t.Errorf("the sandbox that a clause before had was lost: %v", errors.Join(b.core.Err(), b.destroy(context.WithoutCancel(ctx))))
		b = nil
	}
	if b == nil {
		made, err := s.create(ctx, nil)
		if err != nil {
			t.Fatalf("%v", err)
		}
		b = made
	}
	t.Cleanup(func() {
		after := context.WithoutCancel(ctx)
		_, err := b.core.Quiesce(after)
		s.kit.mu.Lock()
		defer s.kit.mu.Unlock()
		if err == nil && s.kit.lent == nil {
			s.kit.lent = b
			return
		}
		if err := b.destroy(after); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return b
}

// common is a sandbox that harmless clauses share, each with a session of its
// own: making one for each would take an engine half a minute.
func (s *Subject) common(ctx context.Context, t *conformance.T) *box {
	s.kit.mu.Lock()
	defer s.kit.mu.Unlock()
	if b := s.kit.shared; b != nil {
		select {
		case <-b.core.Lost():
			t.Errorf("the sandbox that the clauses share was lost: %v", b.core.Err())
		default:
			return b
		}
	}
	b, err := s.create(ctx, nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.kit.shared = b
	return b
}

// shell opens a session that ends with the clause.
func (b *box) shell(ctx context.Context, t *conformance.T) *sandbox.Client {
	return b.shellAs(ctx, t, "", "", nil)
}

func (b *box) shellAs(ctx context.Context, t *conformance.T, user, dir string, env []string) *sandbox.Client {
	id := fmt.Sprint("session-", b.s.kit.counter.Add(1))
	c, err := b.core.Attach(ctx, host.Session{ID: id, User: user, Dir: dir, Env: env})
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	shell, err := sandbox.New(c)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	t.Cleanup(func() {
		_ = shell.Close()
		_ = b.core.Detach(context.WithoutCancel(ctx), id)
	})
	return shell
}
