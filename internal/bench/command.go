package main

import (
	"context"
	"errors"
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
	e, sandboxd, undo, err := b.environment(ctx, "local")
	if undo != nil {
		defer undo()
	}
	if err != nil {
		return err
	}
	box, err := b.open(ctx, e, sandboxd, environment.Spec{})
	if box != nil {
		defer box.close(context.WithoutCancel(ctx)) //nolint:errcheck // the figures were taken
	}
	if err != nil {
		return err
	}
	r, err := relay.New(filepath.Join(b.dir, "r"), relay.Of(box.core, host.Session{ID: "bench"}))
	if err != nil {
		return err
	}
	defer r.Shut(context.WithoutCancel(ctx)) //nolint:errcheck // the same
	if err = r.Open(ctx); err != nil {
		return err
	}
	shell, err := sandbox.Dial(r.Address())
	if err != nil {
		return err
	}
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
		if r, err := shell.Exec(ctx, sandbox.Command{Argv: []string{"/bin/true"}}); err != nil || !r.OK() {
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

// box is a sandbox with its core.
type box struct {
	env    environment.Environment
	id     string
	core   *host.Sandbox
	folder *host.Folder
}

// environment returns an environment of the built plugins, and the program of its
// sandboxes. undo stops the plugins.
func (b *bench) environment(ctx context.Context, name string) (e environment.Environment, sandboxd string, undo func(), err error) {
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(b.bin, "plugins")}})
	if err != nil {
		return nil, "", nil, err
	}
	if e, _, err = h.Environment(ctx, name); err == nil {
		sandboxd, _, err = host.Install(filepath.Join(b.dir, "d"), filepath.Join(b.bin, "berth-sandboxd"))
	}
	return e, sandboxd, h.Stop, err
}

// open makes a sandbox, as a plain trial does. more says what else its specification has.
func (b *bench) open(ctx context.Context, e environment.Environment, sandboxd string, more environment.Spec) (*box, error) {
	folder, err := host.NewFolder(filepath.Join(b.dir, fmt.Sprint("c", b.made.Add(1))), sandboxd)
	if err != nil {
		return nil, err
	}
	more.Labels = environment.Labels{Owner: "bench", Trial: "bench", Attempt: 1}
	more.Network, more.Control, more.Lease, more.Scratch = environment.Network{Mode: environment.NetworkNone}, folder.Path, time.Minute, b.dir
	got, err := e.Create(ctx, more)
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	core, err := host.Connect(ctx, folder, got.PID, time.Minute)
	return &box{e, got.ID, core, folder}, err
}

func (x *box) close(ctx context.Context) error {
	_, err := x.env.Destroy(ctx, x.id)
	if x.core != nil {
		_ = x.core.Close()
	}
	return errors.Join(err, x.folder.Close())
}
