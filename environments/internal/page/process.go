package page

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// Launch says how a browser is started in a sandbox.
type Launch struct {
	Shell     *sandbox.Client // the caller closes it, after Stop
	Program   string          // Chromium: a name in the PATH of the sandbox, or a path
	Proxy     string          // URL of a proxy, inside the sandbox; empty: none
	Downloads bool            // pages may download files, to a folder of the profile
	Settings  Settings
}

// Process is Chromium in a sandbox, with a profile that was made for it.
type Process struct {
	*Browser

	shell   *sandbox.Client
	profile string
	stop    context.CancelFunc
	ended   chan struct{} // closed when the command has ended
	said    *output.Tail
}

// Start starts Chromium. Stop frees it. It fails with environment.ErrRefused where the
// sandbox has no Chromium.
func Start(ctx context.Context, l Launch) (p *Process, err error) {
	p = &Process{shell: l.Shell, ended: make(chan struct{}), said: output.NewTail(kept)}
	if p.profile, err = p.output(ctx, `d=$(mktemp -d /tmp/berth-browser.XXXXXX) && echo "$d"`); err != nil {
		return nil, fmt.Errorf("make a folder for the profile: %w", err)
	}
	if err = p.launch(ctx, &l); err != nil {
		p.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	return p, nil
}

func (p *Process) launch(ctx context.Context, l *Launch) error {
	if found, err := p.output(ctx, `command -v "$0" || true`, l.Program); err != nil {
		return err
	} else if found == "" {
		return fmt.Errorf("%w: there is no %s in the sandbox: apt-get install chromium, in the image of the task or on the machine whose programs the sandbox has, or set program", environment.ErrRefused, l.Program)
	}
	if l.Downloads {
		l.Settings.Downloads = p.profile + "/downloads"
	}
	in, toBrowser := io.Pipe()
	fromBrowser, out := io.Pipe()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	// The shell gives the browser its input and output as the descriptors of the
	// protocol.
	argv := append([]string{"sh", "-c", `exec "$0" "$@" 3<&0 4>&1 </dev/null >&2`, l.Program}, Arguments(p.profile+"/profile", l.Proxy, l.Settings)...)
	go func() {
		defer close(p.ended)
		r, failed := p.shell.Exec(background, sandbox.Command{
			Argv: argv, Env: []string{"HOME=" + p.profile, "XDG_CONFIG_HOME=" + p.profile, "XDG_CACHE_HOME=" + p.profile}, Stdin: in, Stdout: out, Stderr: p.said,
		})
		fmt.Fprintf(p.said, " (%s)", end(r, failed))
		_ = out.CloseWithError(io.EOF)
		_ = in.CloseWithError(io.ErrClosedPipe)
	}()
	b, err := New(ctx, fromBrowser, toBrowser, l.Settings)
	p.Browser = b
	return p.Explained(err)
}

// output runs a shell command and returns the line that it prints.
func (p *Process) output(ctx context.Context, script string, args ...string) (string, error) {
	out, said := output.NewTail(kept), output.NewTail(kept)
	r, err := p.shell.Exec(ctx, sandbox.Command{Argv: append([]string{"sh", "-c", script}, args...), Stdout: out, Stderr: said, Timeout: time.Minute})
	if err == nil && !r.OK() {
		err = fmt.Errorf("exit code %d: %s", r.ExitCode, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(out.String()), err
}

// Explained adds what the browser printed last to an error, if it has ended.
func (p *Process) Explained(err error) error {
	if err == nil || p.Browser == nil {
		return err
	}
	select {
	case <-p.Done():
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(p.said.String()))
	default:
		return err
	}
}

// Stop ends the browser and removes its profile, if the sandbox is still there.
func (p *Process) Stop(ctx context.Context) {
	if p.stop != nil {
		p.stop() // kills the browser and what it started
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
	}
	_, _ = p.output(ctx, `rm -rf "$0"`, p.profile) // it goes with the sandbox at the latest
}

// kept is how much of the end of an output is kept, in bytes.
const kept = 2 << 10

// end says how a command ended.
func end(r sandbox.Result, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case r.Signal != 0:
		return "killed by signal: " + r.Signal.String()
	default:
		return fmt.Sprintf("exit code %d", r.ExitCode)
	}
}
