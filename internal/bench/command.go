package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
)

// pluginStart measures the time until a small plugin gives its first answer,
// compared with starting the same program by hand, which refuses to run and
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
	defer box.close()
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

// made is one sandbox with a shell through a relay.
type made struct {
	shell *sandbox.Client
	box   *host.Sandbox
	undo  []func()
}

func (m *made) close() {
	for i := len(m.undo) - 1; i >= 0; i-- { //nolint:modernize // nothing else reads undo at the same time
		m.undo[i]()
	}
}

func (b *bench) sandbox(ctx context.Context, env string) (_ *made, err error) {
	m := &made{}
	b.made++
	unique := func(name string) string { return filepath.Join(b.dir, fmt.Sprint(name, b.made)) }
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(b.bin, "plugins")}})
	if err != nil {
		return nil, err
	}
	m.undo = append(m.undo, h.Stop)
	e, _, err := h.Environment(ctx, env)
	if err != nil {
		return nil, err
	}
	binary, _, err := host.Install(filepath.Join(b.dir, "d"), filepath.Join(b.bin, "berth-sandboxd"))
	if err != nil {
		return nil, err
	}
	folder, err := host.NewFolder(unique("c"), binary)
	if err != nil {
		return nil, err
	}
	m.undo = append(m.undo, func() { _ = folder.Close() })
	spec := environment.Spec{
		Labels:  environment.Labels{Owner: "bench", Trial: "bench", Attempt: 1},
		Network: environment.Network{Mode: environment.NetworkNone}, Control: folder.Path, Lease: time.Minute, Scratch: b.dir,
	}
	got, err := e.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	m.undo = append(m.undo, func() { _, _ = e.Destroy(context.WithoutCancel(ctx), got.ID) })
	box, err := host.Connect(ctx, folder, got.PID, time.Minute)
	if err != nil {
		return nil, err
	}
	m.undo = append(m.undo, func() { _ = box.Close() })
	m.box = box
	r, err := relay.New(unique("r"), relay.Of(box, host.Session{ID: "bench"}))
	if err != nil {
		return nil, err
	}
	m.undo = append(m.undo, func() { _ = r.Shut(context.WithoutCancel(ctx)) })
	if err = r.Open(ctx); err != nil {
		return nil, err
	}
	m.shell, err = sandbox.Dial(r.Address())
	return m, err
}
