package environmenttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// Box is one sandbox with the kit's connection to it, as one clause sees it.
type Box struct {
	environment.Sandbox
	Core *host.Sandbox

	folder *host.Folder
	s      *Subject
	t      *conformance.T
	client *sandbox.Client // of a session as root at /; nil: not opened yet
}

// newSpec returns the subject's Spec with new labels, control folder and lease.
func (s *Subject) newSpec(change func(*environment.Spec)) (environment.Spec, *host.Folder, error) {
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

// spec is newSpec for a clause.
func (s *Subject) spec(t *conformance.T, change func(*environment.Spec)) environment.Spec {
	spec, folder, err := s.newSpec(change)
	t.Must("make a control folder", err)
	t.Cleanup(func(context.Context) { _ = folder.Close() })
	return spec
}

// create creates a sandbox and connects to it.
func (s *Subject) create(t *conformance.T, change func(*environment.Spec)) (*Box, error) {
	spec, folder, err := s.newSpec(change)
	if err != nil {
		return nil, err
	}
	made, err := s.Environment.Create(t.Context(), spec)
	if err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("create: %w", err)
	}
	b := &Box{Sandbox: made, folder: folder, s: s, t: t}
	if made.Stream != "" {
		err = errors.New("the kit reaches sandboxes by their control folder, and this one offers a stream")
	} else {
		b.Core, err = connect(t.Context(), folder, made.PID)
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", errors.Join(err, b.destroy(context.WithoutCancel(t.Context()))))
	}
	return b, nil
}

// connectTime is how long after Create sandboxd may take to connect.
const connectTime = 6 * time.Second

func connect(ctx context.Context, f *host.Folder, pid int) (*host.Sandbox, error) {
	within := conformance.Patience(connectTime)
	soon, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	core, err := host.Connect(soon, f, pid, time.Minute)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("create returned, and no /berth/sandboxd connected within %v: start it as PID 1 of the sandbox, with the control folder at /berth. berth plugin test --verbose prints the output of the plugin (%w)", within, err)
	}
	return core, err
}

// destroy removes the sandbox and the kit's files for it.
func (b *Box) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, conformance.Patience(20*time.Second))
	defer cancel()
	_, err := b.s.Environment.Destroy(ctx, b.ID)
	if b.Core != nil {
		_ = b.Core.Close()
	}
	_ = b.folder.Close()
	return err
}

// Fresh returns a sandbox for this clause alone.
func (s *Subject) Fresh(t *conformance.T, change func(*environment.Spec)) *Box {
	b, err := s.create(t, change)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func(ctx context.Context) { t.Check("destroy", b.destroy(ctx)) })
	return b
}

// common returns the sandbox that harmless clauses share, each with its own
// session. Creating one for each of them would take half a minute.
func (s *Subject) common(t *conformance.T) *Box {
	if b := s.kit.shared; b != nil && b.Core.Err() != nil {
		t.Errorf("the sandbox that the clauses share was lost: %v", errors.Join(b.Core.Err(), b.destroy(context.WithoutCancel(t.Context()))))
		s.kit.shared = nil
	}
	if s.kit.shared == nil {
		b, err := s.create(t, nil)
		if err != nil {
			t.Fatalf("%v", err)
		}
		s.kit.shared = b
	}
	seen := *s.kit.shared
	seen.t = t
	return &seen
}

// shell returns a client of a session as root at /, which is closed when the clause
// ends.
func (b *Box) shell() *sandbox.Client {
	if b.client == nil {
		b.client = b.as("", "", nil).client
	}
	return b.client
}

// as returns the sandbox as seen in a session of a user, in a folder, with variables.
func (b *Box) as(user, dir string, env map[string]string) *Box {
	who := host.Session{ID: fmt.Sprint("session-", b.s.kit.counter.Add(1)), User: user, Dir: dir}
	for name, value := range env {
		who.Env = append(who.Env, name+"="+value)
	}
	client, err := b.Core.Shell(b.t.Context(), who)
	b.t.Must("attach", err)
	b.t.Cleanup(func(ctx context.Context) {
		_ = client.Close()
		_ = b.Core.Detach(ctx, who.ID)
	})
	seen := *b
	seen.client = client
	return &seen
}

// sh runs a script and returns its output without the last newline. If the
// script fails or does not run, the clause ends.
func (b *Box) sh(script string) string {
	out, r := b.try(script)
	if !r.OK() {
		b.t.Fatalf("%q ended with %+v and printed %q", script, r, out)
	}
	return out
}

// try is sh for scripts that may fail.
func (b *Box) try(script string) (string, sandbox.Result) {
	var out bytes.Buffer
	r, err := b.shell().Exec(b.t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", script}, Stdout: &out, Stderr: &out})
	b.t.Must(fmt.Sprintf("%q did not run", script), err)
	return strings.TrimSuffix(out.String(), "\n"), r
}

// prints fails the clause unless a script, which may fail, prints what is wanted.
func (b *Box) prints(want, script string) {
	if got, _ := b.try(script); got != want {
		b.t.Errorf("printed %q, want %q", got, want)
	}
}

// processes are those in the sandbox, with ones that have ended and are not reaped.
func (b *Box) processes() host.Processes {
	ps, err := b.Core.Processes(b.t.Context())
	b.t.Must("processes", err)
	return ps
}

// quiesce kills all processes in the sandbox and returns how many there were.
func (b *Box) quiesce() int {
	killed, err := b.Core.Quiesce(b.t.Context())
	b.t.Must("quiesce", err)
	return len(killed)
}

// destroyed destroys the sandbox within the clause, and waits for its end.
func (b *Box) destroyed(also ...*Box) {
	r, err := b.s.Environment.Destroy(b.t.Context(), b.ID)
	b.t.Must("destroy", err)
	if r.OOMKills < 0 || r.PeakMemoryMiB < 0 || r.CPU < 0 || r.Throttled < 0 {
		b.t.Errorf("destroy reports %+v", r)
	}
	for _, box := range append(also, b) {
		box.t.Eventually("sandboxd no longer answers after destroy", func() bool { return box.Core.Err() != nil })
	}
	if b.PID > 0 {
		b.t.Eventually("PID 1 of the sandbox is gone", func() bool { return gone(b.PID) })
	}
}

// listed fails the clause unless exactly these sandboxes are listed for an owner.
func (s *Subject) listed(t *conformance.T, owner string, want ...string) {
	if ids, err := s.Environment.List(t.Context(), owner); err != nil || !slices.Equal(ids, want) {
		t.Errorf("list %q: %q, %v; want %q", owner, ids, err, want)
	}
}

// unmade fails the clause if Create makes a sandbox, or leaves something of it. It
// returns the error of Create.
func (s *Subject) unmade(t *conformance.T, what string, change func(*environment.Spec)) error {
	owner := fmt.Sprint(s.kit.owner, "-none-", s.kit.counter.Load())
	made, err := s.Environment.Create(t.Context(), s.spec(t, func(p *environment.Spec) {
		change(p)
		p.Labels.Owner = owner
	}))
	if err == nil {
		_, _ = s.Environment.Destroy(t.Context(), made.ID)
		t.Errorf("made %q with %s", made.ID, what)
	}
	s.listed(t, owner)
	return err
}

// gone reports whether a process of the host has ended.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(state, "Z") // it only waits to be reaped
}
