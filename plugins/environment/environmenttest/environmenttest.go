// Package environmenttest is the conformance kit of environments. It checks
// what every environment must do, however it creates sandboxes, in process and
// through a built plugin.
//
// It must not know any engine. It uses package host as the core does, and tests
// real sandboxes that need only a POSIX shell and the usual small programs
// inside.
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
	// Spec is the base of all sandboxes of the kit: an image with a POSIX
	// shell, and whatever else the environment requires. The kit sets labels,
	// control folder and lease.
	Spec environment.Spec
	// Variable is the name of a variable that only the plugin's process has;
	// empty: the plugin runs in this process.
	Variable string
	// Sandboxd is the path of the binary that goes into control folders.
	Sandboxd string
	// Runtime is a folder on node-local disk, not mounted noexec, with a short
	// path, in which the kit creates its own folder; empty: the system's folder
	// for temporary files.
	Runtime string

	kit *kit
}

// Run runs every clause as a subtest. Call it from the plugin's own tests, once
// in process and once through the built binary:
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

// Clauses returns all clauses of the kit in the order in which they run. The
// subject must come from Start.
func Clauses() []conformance.Clause[Subject] {
	return slices.Concat(lifeClauses, []conformance.Clause[Subject]{taskClause}, placeClauses, workClauses, wallClauses, coreClauses, limitClauses, sidecarClauses, abilityClauses)
}

// kit is what the clauses of one trial share.
type kit struct {
	owner   string // owner label of everything that the kit creates
	folder  string // 0700
	binary  string
	counter atomic.Int64
	// refusesTasks is why taskClause is skipped; empty: it is not.
	refusesTasks string
	// copiesFiles says that an environment without images carries out COPY.
	copiesFiles bool

	mu     sync.Mutex
	shared *box
	lent   *box
}

// Start prepares what the clauses share. done removes it together with every
// sandbox of the kit that is left. If Check refuses even the base of the kit's
// sandboxes, or their image cannot be prepared, the kit cannot run on this
// machine. Then Start returns one error, which wraps environment.ErrRefused,
// instead of a failure of every clause.
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
	if err == nil {
		s.kit.refusesTasks, err = s.taskRefusal(ctx)
	}
	if err != nil {
		return s, nil, joined(err, os.RemoveAll(dir))
	}
	return s, func() error { return s.finish(ctx, dir) }, nil
}

// refused returns the first refusal of the base of the kit's sandboxes; nil
// when there is none. The clauses about Check report a Check that fails or
// hangs.
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
		return nil //nolint:nilerr // a clause reports it
	}
	return report.Err()
}

// prepareTime bounds the preparation of the image of the kit's sandboxes.
const prepareTime = 15 * time.Minute

// Prepare prepares the image of spec, if the environment has images. Its error
// wraps environment.ErrRefused: without an image, the kit cannot create a
// sandbox.
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
	return refusal{fmt.Errorf("the image of the kit's sandboxes (%s) cannot be prepared: %w: connect this machine to the registry, or name an image that it has (--image of `berth plugin test`)",
		which, err)}
}

// refusal is environment.ErrRefused with its own text.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (refusal) Is(target error) bool { return target == environment.ErrRefused }

// finish destroys the kit's remaining sandboxes.
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

// box is one sandbox with the kit's connection to it.
type box struct {
	environment.Sandbox
	core   *host.Sandbox
	folder *host.Folder
	s      *Subject
}

// spec returns the subject's Spec with new labels, control folder and lease.
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

// create creates a sandbox and connects to it.
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
		b.core, err = connect(ctx, folder, made.PID)
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", joined(err, b.destroy(context.WithoutCancel(ctx))))
	}
	return b, nil
}

// connectTime is how long after Create sandboxd may take to connect.
const connectTime = 6 * time.Second

func connect(ctx context.Context, f *host.Folder, pid int) (*host.Sandbox, error) {
	soon, cancel := context.WithTimeout(ctx, conformance.Patience(connectTime))
	defer cancel()
	core, err := host.Connect(soon, f, pid, time.Minute)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("create returned, and no /berth/sandboxd connected within %v: start it as PID 1 of the sandbox, with the control folder at /berth. berth plugin test --verbose prints the output of the plugin (%w)", conformance.Patience(connectTime), err)
	}
	return core, err
}

func joined(err, other error) error {
	if other != nil {
		return fmt.Errorf("%w; and then %w", err, other)
	}
	return err
}

// destroy removes the sandbox and the kit's files for it.
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

// fresh returns a sandbox for this clause alone.
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

// borrowed returns a sandbox that no other clause uses at the same time and in
// which nothing runs. It is the sandbox of an earlier clause, with all its
// processes killed.
func (s *Subject) borrowed(ctx context.Context, t *conformance.T) *box {
	s.kit.mu.Lock()
	b := s.kit.lent
	s.kit.lent = nil
	s.kit.mu.Unlock()
	if b != nil && b.core.Err() != nil {
		t.Errorf("the sandbox of an earlier clause was lost: %v", errors.Join(b.core.Err(), b.destroy(context.WithoutCancel(ctx))))
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

// common returns the sandbox that harmless clauses share, each with its own
// session. Creating one for each of them would take half a minute.
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

// shell opens a session that is closed when the clause ends.
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
