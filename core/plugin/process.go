package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// process is one run of a plugin binary.
type process struct {
	*child // the operating system's side

	client   *goplugin.Client // nil: the user started the process
	conn     *grpc.ClientConn
	protocol int
	started  time.Time
	polite   atomic.Bool // we asked it to stop
}

// start runs a binary and returns when it has answered the handshake. ctx
// bounds only the start. The process gets the variables env of the host's
// environment, leads its own process group, and dies with us even if we are
// killed (Linux).
func (h *Host) start(ctx context.Context, b *binary, env []string) (*process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", b.name(), err)
	}
	c := newChild(b.path, h.environ(env), b.log, h.output.Load)
	stop := context.AfterFunc(ctx, c.kill) // plugin.Client.Start takes no context
	p := &process{child: c, started: time.Now()}
	p.client = goplugin.NewClient(&goplugin.ClientConfig{ //nolint:contextcheck // ctx bounds the start, not the process
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: plugins.CookieKey, MagicCookieValue: plugins.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{plugins.Protocol: {plugins.SetName: &dispenser{}}},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			c.cmd.Env, c.sockets = append(c.cmd.Env, cmd.Env...), dir
			return c, nil
		},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: h.sockets.Dir},
		SkipHostEnv:      true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, // the default is net/rpc
		StartTimeout:     h.startTimeout,
		// Our errors contain what it would log, and its parser of stderr panics
		// on malicious lines.
		Logger:          hclog.NewNullLogger(),
		SyncStdout:      c.out,
		SyncStderr:      c.err,
		GRPCDialOptions: fault.DialOptions(),
	})
	err := p.dispense()
	if err == nil && stop() {
		b.log.Debug().Int64("pid", int64(c.pid())).Int("protocol", p.protocol).
			Dur("dur_ms", time.Since(p.started)).Msg("plugin started")
		return p, nil
	}
	p.stop()
	return nil, p.explainStart(b, errors.Join(ctx.Err(), err), h.startTimeout)
}

// dispense does the handshake and gets the connection from go-plugin.
func (p *process) dispense() error {
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(plugins.SetName)
	if err != nil {
		return err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return fmt.Errorf("dispensed a %T", raw)
	}
	p.conn, p.protocol = conn, p.client.NegotiatedVersion()
	return nil
}

// explainStart says why a start failed, as far as we know: the errors of
// go-plugin are written for programmers.
func (p *process) explainStart(b *binary, err error, timeout time.Duration) error {
	name, line := b.names(), p.handshake()
	parts := strings.Split(line, "|")
	reason := ""
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("start plugin %s: %w", name, err)
	case p.startErr != nil:
		return fmt.Errorf("start plugin %s: %w", name, p.startErr)
	case line == "" && strings.Contains(err.Error(), "timeout"):
		reason = fmt.Sprintf("it did not finish the handshake within %s", timeout)
	case line == "":
		reason = fmt.Sprintf("it ended before the handshake (%s), but a plugin serves until Berth ends it", p.status())
	case len(parts) < 5 || parts[0] != strconv.Itoa(goplugin.CoreProtocolVersion):
		reason = fmt.Sprintf("it printed %.200q on stdout before the handshake: print to stderr instead", line)
	case parts[4] != string(goplugin.ProtocolGRPC):
		reason = fmt.Sprintf("it speaks %.40q instead of grpc", parts[4])
	default:
		if number, bad := strconv.Atoi(parts[1]); bad == nil && number != plugins.Protocol {
			reason = mismatch(name, number)
			break
		}
		return fmt.Errorf("start plugin %s: %w%s", name, err, p.words())
	}
	return fmt.Errorf("start plugin %s: %s (%s)%s", name, reason, b.path, p.words())
}

// mismatch is the message for a plugin of another protocol number.
func mismatch(name string, number int) string {
	todo := fmt.Sprintf("upgrade the plugin to a version that speaks %d", plugins.Protocol)
	if number > plugins.Protocol {
		todo = fmt.Sprintf("upgrade berth, or install a version of the plugin that speaks %d", plugins.Protocol)
	}
	return fmt.Sprintf("plugin %q speaks plugin protocol %d, this berth speaks %d: %s", name, number, plugins.Protocol, todo)
}

// stop ends the process because it is no longer needed.
func (p *process) stop() {
	p.polite.Store(true)
	p.free()
}

// free ends the process, gracefully and after two seconds by force, kills the
// rest of its process group, and frees our resources for it. It returns when
// everything is gone and may be called again.
func (p *process) free() {
	// Kill asks the process to shut down and waits for the answer without a
	// timeout, so a process that hangs must be killed meanwhile.
	force := time.AfterFunc(2*time.Second, p.kill)
	defer force.Stop()
	p.client.Kill()
	p.finish()
}

func (p *process) stopping() bool { return p.polite.Load() }

// howItEnded says how the process ended and returns the last lines that it wrote.
func (p *process) howItEnded() string {
	return fmt.Sprintf("%s (%s)%s", nameOf(p.path), p.status(), p.words())
}

// words returns the last lines of stderr, for the end of a message.
func (p *process) words() string {
	tail := p.err.tail()
	if len(tail) == 0 {
		return ""
	}
	return "; its last words:\n" + strings.Join(tail, "\n")
}

// dispenser gives us the connection itself, because contracts are clients on
// it.
type dispenser struct {
	goplugin.NetRPCUnsupportedPlugin
}

var _ goplugin.GRPCPlugin = (*dispenser)(nil)

func (*dispenser) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return fmt.Errorf("a host serves no plugin: %w", environment.ErrUnsupported)
}

func (*dispenser) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// passed are the variables of the host's environment that every plugin gets;
// none of them holds a secret. A plugin requests others in Describe.
var passed = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", runtimedir.Env}

// environ selects the variables of all that a plugin gets if it requests extra.
func environ(all, extra []string) []string {
	var env []string
	for _, kv := range all {
		name, _, ok := strings.Cut(kv, "=")
		if ok && (slices.Contains(passed, name) || slices.Contains(extra, name) ||
			strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")) {
			env = append(env, kv)
		}
	}
	return env
}

func (h *Host) environ(extra []string) []string {
	return slices.Concat(environ(os.Environ(), extra), h.opts.Env)
}

// maxSocketDir is the longest path of the folder for sockets, in bytes: the
// path of a Unix socket is limited to 107 bytes, and each process has a folder
// and a socket name below it.
const maxSocketDir = 60

// openSockets makes the private folder for the sockets of one host, and removes the
// folders that dead hosts left behind. It is in the runtime folder, or in the folder
// for temporary files if there is none, which is enough to list plugins or to clean up.
func openSockets() (*node.Scratch, error) {
	base, err := runtimedir.Dir()
	if err == nil {
		base = filepath.Join(base, "s")
	} else {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("berth-plugins-%d", os.Geteuid()))
		if len(filepath.Join(base, "12345678")) > maxSocketDir {
			base = filepath.Join("/tmp", filepath.Base(base))
		}
	}
	if err = runtimedir.Make(base); err != nil {
		return nil, fmt.Errorf("folder for plugin sockets: %w", err)
	}
	return node.NewScratch(base)
}

// conn is a connection to the process of a binary that runs at the time of each
// call. It starts the process if there is none, and its errors explain what
// happened to the plugin.
type conn struct {
	binary *binary
	who    string   // for messages: `agent "nop"`
	only   *process // the only process that may answer; nil: the current one
}

func (c conn) acquire(ctx context.Context) (*process, error) {
	if c.only != nil {
		return c.only, nil
	}
	return c.binary.acquire(ctx)
}

var _ grpc.ClientConnInterface = conn{}

func (c conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	p, err := c.acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.who, err)
	}
	return c.explain(ctx, p, method, p.conn.Invoke(p.attempts.serve(ctx), method, args, reply, opts...))
}

func (c conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p, err := c.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.who, err)
	}
	s, err := p.conn.NewStream(p.attempts.serve(ctx), desc, method, opts...)
	if err != nil {
		return nil, c.explain(ctx, p, method, err)
	}
	return stream{ClientStream: s, caller: ctx, conn: c, proc: p, method: method}, nil
}

type stream struct {
	grpc.ClientStream

	caller context.Context // context of the call: the context of the stream ends with the stream
	conn   conn
	proc   *process
	method string
}

func (s stream) SendMsg(m any) error {
	return s.conn.explain(s.caller, s.proc, s.method, s.ClientStream.SendMsg(m))
}

func (s stream) RecvMsg(m any) error {
	return s.conn.explain(s.caller, s.proc, s.method, s.ClientStream.RecvMsg(m))
}

// endTimeout is how long to wait for the end of a process after its connection
// broke: the call fails a moment before the end is seen.
const endTimeout = time.Second

// explain turns an error of gRPC into an explanation of what happened. It keeps
// io.EOF, which means the end of a stream.
func (c conn) explain(ctx context.Context, p *process, method string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	op := c.who + ": " + strings.ToLower(method[strings.LastIndexByte(method, '/')+1:])
	code := status.Code(err)
	// Closing the connection of an ended process cancels its remaining calls, a
	// moment before the process counts as ended.
	closed := code == codes.Canceled && ctx.Err() == nil && (p.ended() || p.conn.GetState() == connectivity.Shutdown)
	if code != codes.Unavailable && !closed {
		err = fault.Plugin.DecodeCall(ctx, err)
		if errors.Is(err, agent.ErrNoSession) {
			return fmt.Errorf("%s: %w: %w", op, ErrPluginGone, err)
		}
		if errors.Is(err, fault.ErrPanic) {
			return panicked{fmt.Errorf("%s: %w", op, err)}
		}
		return err
	}
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		if p.conn.GetState() == connectivity.Ready {
			return fmt.Errorf("%s: the plugin answered with the code UNAVAILABLE, which a plugin must not use: it means that the process of the plugin is gone, "+
				"but it is running. What it said: %s", op, status.Convert(err).Message())
		}
		p.kill() // it no longer answers: start a new one next time
		<-p.done
	}
	if p.stopping() {
		return fmt.Errorf("%s: %w", op, ErrStopped)
	}
	return fmt.Errorf("%s: %w: %s", op, ErrPluginGone, p.howItEnded())
}

// panicked is the error of a call that panicked. For the caller the plugin is
// gone, although its process still runs.
type panicked struct{ error }

// Is makes the error match ErrPluginGone.
func (panicked) Is(target error) bool { return target == ErrPluginGone }

// Unwrap returns the error of the plugin.
func (p panicked) Unwrap() error { return p.error }
