package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
)

// pluginStart measures the time until a small plugin gives its first answer,
// compared with starting the same program directly, which refuses to run and
// exits.
func (b *bench) pluginStart(ctx context.Context, f *figures) error {
	var ours, bare []time.Duration
	cache := filepath.Join(b.dir, "cache")
	for i := range 31 {
		h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(b.bin, "plugins")}, Cache: cache})
		if err != nil {
			return err
		}
		a, _, err := h.Agent(ctx, "nop") // reads the cache; starts nothing
		if err != nil {
			return err
		}
		began := time.Now()
		_, err = a.Open(ctx, agentSetup(b.dir))
		took := time.Since(began)
		h.Stop()
		if err != nil {
			return err
		}
		began = time.Now()
		_ = exec.CommandContext(ctx, filepath.Join(b.bin, "plugins", "berth-plugin-nop")).Run() // it prints that it is a plugin, and fails
		if i > 0 {
			ours, bare = append(ours, took), append(bare, time.Since(began))
		}
	}
	p, q := quantile(ours, 0.5), quantile(bare, 0.5)
	f.add("plugin start to its first answer, p50", ms(p), "the program alone, run to its refusal: "+ms(q), fmt.Sprintf("+%s", ms(p-q)), "≤ 10 ms for a small plugin")
	return nil
}

// commands measures one command in a sandbox, through the relay as for a
// plugin, compared with fork, exec and wait of the same program on the host,
// alternating.
func (b *bench) commands(ctx context.Context, f *figures) error {
	box, err := b.sandbox(ctx, "local")
	if err != nil {
		return err
	}
	defer func() { _ = box.close() }()
	const n = 600
	var in, out []time.Duration
	for i := range n + 50 {
		began := time.Now()
		p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		if err == nil {
			_, err = p.Wait()
		}
		if err != nil {
			return err
		}
		host := time.Since(began)
		began = time.Now()
		if r, err := box.shell.Exec(ctx, sandbox.Command{Argv: []string{"/bin/true"}}); err != nil || !r.OK() {
			return fmt.Errorf("command: %+v, %w", r, err)
		}
		if i >= 50 {
			in, out = append(in, time.Since(began)), append(out, host)
		}
	}
	p, q := quantile(in, 0.5), quantile(out, 0.5)
	f.add("command in a sandbox (local, relay), p50", ms(p), "fork+exec+wait on the host: "+ms(q),
		fmt.Sprintf("+%s, %.2f ×", ms(p-q), float64(p)/float64(q)), "≤ 0.4 ms more, or ≤ 1.6 ×")
	f.add("command in a sandbox (local, relay), p99", ms(quantile(in, 0.99)), "on the host: "+ms(quantile(out, 0.99)), "", "")
	return nil
}

// made is one sandbox, with a shell through a relay if it was made by sandbox.
type made struct {
	shell *sandbox.Client
	box   *host.Sandbox
	undo  []func() error
}

func (m *made) close() (err error) {
	for _, undo := range slices.Backward(m.undo) {
		err = errors.Join(err, undo())
	}
	m.undo = nil
	return err
}

// sandboxd installs the program of sandboxes.
func (b *bench) sandboxd() (binary string, err error) {
	binary, _, err = host.Install(filepath.Join(b.dir, "d"), filepath.Join(b.bin, "berth-sandboxd"))
	return binary, err
}

// unique returns a short path that nothing else has.
func (b *bench) unique(name string) string {
	return filepath.Join(b.dir, fmt.Sprint(name, b.made.Add(1)))
}

// create makes a sandbox without a network, as a plain trial has it.
func (b *bench) create(ctx context.Context, e environment.Environment, binary string, spec environment.Spec) (m *made, err error) {
	m = &made{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	folder, err := host.NewFolder(b.unique("c"), binary)
	if err != nil {
		return nil, err
	}
	m.undo = append(m.undo, folder.Close)
	spec.Labels = environment.Labels{Owner: "bench", Trial: "bench", Attempt: 1}
	spec.Network, spec.Control, spec.Lease, spec.Scratch = environment.Network{Mode: environment.NetworkNone}, folder.Path, time.Minute, b.dir
	got, err := e.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	m.undo = append(m.undo, func() error { _, failed := e.Destroy(context.WithoutCancel(ctx), got.ID); return failed })
	if m.box, err = host.Connect(ctx, folder, got.PID, time.Minute); err != nil {
		return nil, err
	}
	m.undo = append(m.undo, func() error { _ = m.box.Close(); return nil }) // its process may be gone
	return m, nil
}

// sandbox makes a sandbox of an environment with a shell.
func (b *bench) sandbox(ctx context.Context, env string) (m *made, err error) {
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(b.bin, "plugins")}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.Stop()
		}
	}()
	e, _, err := h.Environment(ctx, env)
	if err != nil {
		return nil, err
	}
	binary, err := b.sandboxd()
	if err != nil {
		return nil, err
	}
	if m, err = b.create(ctx, e, binary, environment.Spec{}); err != nil {
		return nil, err
	}
	m.undo = slices.Insert(m.undo, 0, func() error { h.Stop(); return nil })
	r, err := relay.New(b.unique("r"), relay.Of(m.box, host.Session{ID: "bench"}))
	if err == nil {
		m.undo = append(m.undo, func() error { return r.Shut(context.WithoutCancel(ctx)) })
		err = r.Open(ctx)
	}
	if err == nil {
		m.shell, err = sandbox.Dial(r.Address())
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}
