package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

// ownSandboxd lays a sandboxd beside the one that the core gives.
func ownSandboxd(s environment.Spec) error {
	data, err := os.ReadFile(filepath.Join(s.Control, "sandboxd"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Scratch, "sandboxd"), append(data, '\n'), 0o755)
}

// leak gives the variables of this process to the sandbox.
func leak(m *environment.Sandbox) {
	m.Image.Env = map[string]string{}
	for _, e := range os.Environ() {
		if name, value, ok := strings.Cut(e, "="); ok {
			m.Image.Env[name] = value
		}
	}
}

type stranded struct{ *box }

func (*stranded) Check(context.Context, environment.Spec) (environment.Report, error) {
	return environment.Report{Refusals: []environment.Problem{{Summary: "No engine runs here", Detail: "Start it."}}}, nil
}

type unfurnished struct{ *box }

func (*unfurnished) Prepare(context.Context, environment.Image, json.RawMessage, func(string)) (environment.Image, error) {
	return environment.Image{}, errors.New("pull: no such host")
}

type forgetful struct{ *box }

func (*forgetful) List(context.Context, string) ([]string, error) { return nil, nil }

type hoarding struct {
	*box

	mu   sync.Mutex
	gone []string
}

func (h *hoarding) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	h.mu.Lock()
	h.gone = append(h.gone, id)
	h.mu.Unlock()
	return h.box.Destroy(ctx, id)
}

func (h *hoarding) List(ctx context.Context, owner string) ([]string, error) {
	ids, err := h.box.List(ctx, owner)
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(ids, h.gone...), err
}

type clinging struct{ *box }

func (*clinging) Destroy(context.Context, string) (environment.Remains, error) {
	return environment.Remains{}, nil
}

type pedantic struct{ *box }

func (p *pedantic) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	if ids, _ := p.List(ctx, ""); !slices.Contains(ids, id) {
		return environment.Remains{}, fmt.Errorf("no sandbox %q", id)
	}
	return p.box.Destroy(ctx, id)
}

type polite struct{ *box }

func (p *polite) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	if asked.Add(1) == 1 {
		<-ctx.Done() // of the caller, who has lost patience
	}
	return p.box.Destroy(ctx, id)
}

type negative struct{ *box }

func (n *negative) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	_, err := n.box.Destroy(ctx, id)
	return environment.Remains{PeakMemoryMiB: -1}, err
}

type wandering struct{ *box }

func (w *wandering) Check(ctx context.Context, s environment.Spec) (environment.Report, error) {
	r, err := w.box.Check(ctx, s)
	r.About = fmt.Sprint("asked ", asked.Add(1), " times")
	return r, err
}

type stubborn struct{ *box }

func (s *stubborn) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	made, err := s.box.Create(ctx, spec)
	select {
	case <-ctx.Done():
		return environment.Sandbox{}, ctx.Err()
	case <-time.After(time.Second): // most of the time that the kit takes until it is connected, on a busy machine, too
		return made, err
	}
}

type grudging struct {
	*box

	failed atomic.Bool
}

func (g *grudging) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	if g.failed.Load() {
		return environment.Sandbox{}, errors.New("not after what happened")
	}
	made, err := g.box.Create(ctx, spec)
	g.failed.Store(err != nil)
	return made, err
}

type narrow struct{ *box }

func (n *narrow) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	if ids, _ := n.List(ctx, ""); len(ids) >= 4 {
		return environment.Sandbox{}, environment.ErrNoCapacity
	}
	return n.box.Create(ctx, spec)
}

type phoenix struct{ *box }

func (p *phoenix) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	made, err := p.box.Create(ctx, spec)
	if err != nil {
		return made, err
	}
	p.mu.Lock()
	in := p.running[made.ID]
	p.mu.Unlock()
	go func() {
		<-in.ended
		if ids, _ := p.List(context.WithoutCancel(ctx), ""); slices.Contains(ids, made.ID) {
			_, _ = p.start(spec)
		}
	}()
	return made, nil
}

type lenient struct{ *box }

func (l *lenient) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	spec.Mounts = nil
	return l.make(ctx, spec)
}

// accepting is an environment that checks and makes less than the spec says.
type accepting struct {
	*box

	ignore func(*environment.Spec)
}

func (a *accepting) Check(ctx context.Context, s environment.Spec) (environment.Report, error) {
	a.ignore(&s)
	return a.box.Check(ctx, s)
}

func (a *accepting) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	a.ignore(&s)
	return a.box.Create(ctx, s)
}

type messy struct{ *box }

func (m *messy) Check(ctx context.Context, s environment.Spec) (environment.Report, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return environment.Report{}, err
	}
	return m.box.Check(ctx, s)
}

// loose makes a sidecar as a separate sandbox: without the network and the
// volumes of the main one, and without its end.
type loose struct{ *box }

func withSidecars(i plugins.Info) plugins.Plugin {
	i.Capabilities = []string{environment.CapabilitySidecars}
	return env(fault{}, func(b *box) environment.Environment { return &loose{b} })(i)
}

func (l *loose) Check(ctx context.Context, s environment.Spec) (environment.Report, error) {
	s.Sidecars, s.Volumes = nil, nil
	return l.box.Check(ctx, s)
}

func (l *loose) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	made, err := l.make(ctx, s)
	if err != nil {
		return made, err
	}
	for _, side := range s.Sidecars {
		if _, err = os.Stat(side.Control); err != nil {
			return environment.Sandbox{}, err
		}
		id, err := l.start(environment.Spec{Control: side.Control, Volumes: side.Volumes})
		if err != nil {
			return environment.Sandbox{}, err
		}
		l.mu.Lock()
		delete(l.running, id)
		l.mu.Unlock()
		made.Sidecars = append(made.Sidecars, environment.SidecarSandbox{Name: side.Name})
	}
	return made, nil
}

type blurred struct{ *box }

func (*blurred) Prepare(_ context.Context, i environment.Image, _ json.RawMessage, _ func(string)) (environment.Image, error) {
	return i, nil
}

// faceless prepares every image, and shows the host's programs.
type faceless struct{ *box }

func (*faceless) Prepare(_ context.Context, i environment.Image, _ json.RawMessage, _ func(string)) (environment.Image, error) {
	i.Digest = "sha256:0"
	return i, nil
}

func (f *faceless) Check(ctx context.Context, s environment.Spec) (environment.Report, error) {
	s.Image = environment.Image{}
	return f.box.Check(ctx, s)
}

func (f *faceless) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	s.Image = environment.Image{}
	return f.box.Create(ctx, s)
}

type sweeping struct{ *box }

func (*sweeping) Kept(context.Context) ([]environment.KeptImage, error) { return nil, nil }
func (*sweeping) Drop(context.Context, string) (bool, error)            { return true, nil }

type unchanging struct{ *box }

func (*unchanging) Stop(context.Context, string) error { return nil }
func (*unchanging) Snapshot(context.Context, string) (environment.Image, error) {
	return environment.Image{Ref: "nothing"}, nil
}
func (*unchanging) Changed(context.Context, string) ([]string, error) { return nil, nil }
