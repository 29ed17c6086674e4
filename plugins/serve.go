package plugins

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/inprocess"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
	"github.com/berth-eval/berth/plugins/proto/v1/verifierpb"
	"github.com/berth-eval/berth/plugins/verifier"
)

// How host and plugin find each other. plugin.proto says the same for authors
// in other languages.
const (
	CookieKey   = "BERTH_PLUGIN"
	CookieValue = "7d9b3a62-plugin"
	// Protocol is the protocol number; a new one only for a break.
	Protocol = 2
	// ProgramPrefix begins the name of every program in a plugin folder that is a
	// plugin. The rest is a name of lower case letters, digits, - and _. Other
	// programs there are never started.
	ProgramPrefix = "berth-plugin-"
	// AttemptKey is the metadata of calls that names the attempt that they belong
	// to.
	AttemptKey = "berth-attempt"
	// SetName is what go-plugin calls our one set of services.
	SetName = "berth"
)

// Serve makes this process a plugin binary that serves list. It is all that
// main does: nothing may print on stdout before it, and it does not return.
func Serve(list ...Plugin) {
	os.Exit(serve(list, os.Stderr)) //nolint:forbidigo // Serve is the whole of a plugin's main
}

func serve(list []Plugin, stderr io.Writer) int {
	name := filepath.Base(os.Args[0])
	if err := check(list); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	if os.Getenv(CookieKey) != CookieValue {
		fmt.Fprintf(stderr, "%s is a plugin of Berth and is started by it. Put it into a folder of $BERTH_PLUGIN_PATH as %sNAME and see: berth plugin list\n",
			name, ProgramPrefix)
		return 1
	}
	go endWithHost()
	give := giveBackStdio()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: CookieKey, MagicCookieValue: CookieValue, ProtocolVersion: Protocol},
		VersionedPlugins: map[int]goplugin.PluginSet{Protocol: {SetName: &set{list: list}}},
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: stderr, JSONFormat: true}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return newServer(stderr, list, append(opts, give...)...)
		},
	})
	return 0
}

// giveBackStdio undoes, at the first call, that go-plugin puts its own pipes
// in the place of os.Stdout and os.Stderr: what is in such a pipe when the
// process dies are its last words, and they would be lost.
func giveBackStdio() []grpc.ServerOption {
	stdout, stderr := os.Stdout, os.Stderr
	once := sync.OnceFunc(func() { os.Stdout, os.Stderr = stdout, stderr })
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			once()
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			once()
			return next(srv, s)
		}),
	}
}

// endWithHost ends this process, and what it started in its process group, when
// stdin ends: the host holds the other end and writes nothing.
func endWithHost() {
	if info, err := os.Stdin.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
	os.Exit(1) //nolint:forbidigo // there is no caller to return to
}

// Logger logs to the host, which adds the name of the program. Records below Debug
// are not sent. The host knows the attempt of a record that is logged with the context
// of a call: Logger().InfoContext(ctx, …). Safe to use before Serve.
func Logger() *slog.Logger { return slog.New(logHandler(os.Stderr)) }

// logHandler writes the keys that plugin.proto asks for.
func logHandler(w io.Writer) slog.Handler {
	return attemptHandler{slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.MessageKey:
				a.Key = "@message"
			case slog.TimeKey:
				a.Key = "@timestamp"
			case slog.LevelKey:
				level, ok := a.Value.Any().(slog.Level)
				if !ok {
					return a
				}
				return slog.String("@level", levelName(level))
			}
			return a
		},
	})}
}

// attemptHandler adds the attempt of a call to records that are logged with its context.
type attemptHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h attemptHandler) Handle(ctx context.Context, r slog.Record) error {
	if name := metadata.ValueFromIncomingContext(ctx, AttemptKey); len(name) == 1 {
		r.AddAttrs(slog.String("@attempt", name[0]))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h attemptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return attemptHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h attemptHandler) WithGroup(name string) slog.Handler {
	return attemptHandler{h.Handler.WithGroup(name)}
}

func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	default:
		return "error"
	}
}

// newServer is the only place that builds a plugin's gRPC server.
func newServer(stderr io.Writer, list []Plugin, opts ...grpc.ServerOption) *grpc.Server {
	log := slog.New(logHandler(stderr))
	opts = append(opts, gate(list)...)
	return grpc.NewServer(append(opts, fault.ServerOptions(func(ctx context.Context, method string, value any, stack []byte) {
		log.ErrorContext(ctx, "panic", "rpc", method, "value", fmt.Sprint(value), "stack", string(stack))
	})...)...)
}

// Here serves list in this process, with all that Serve puts around it: an
// author's tests meet what the host would. stop ends it.
func Here(list ...Plugin) (conn grpc.ClientConnInterface, stop func(), err error) {
	if err := check(list); err != nil {
		return nil, nil, err
	}
	server := newServer(os.Stderr, list)
	register(server, list)
	return inprocess.Serve(server)
}

// set registers the services.
type set struct {
	goplugin.NetRPCUnsupportedPlugin

	list []Plugin
}

var _ goplugin.GRPCPlugin = (*set)(nil)

func (s *set) GRPCServer(_ *goplugin.GRPCBroker, r *grpc.Server) error {
	register(r, s.list)
	return nil
}

func (s *set) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("a plugin binary has no client: %w", environment.ErrUnsupported)
}

// register offers list on a server with the options of package fault.
func register(r grpc.ServiceRegistrar, list []Plugin) {
	agents, environments, verifiers := map[string]agent.Agent{}, map[string]environment.Environment{}, map[string]verifier.Verifier{}
	for _, p := range list {
		switch p.Kind {
		case KindAgent:
			agents[p.Name] = p.agent
		case KindEnvironment:
			environments[p.Name] = p.environment
		case KindVerifier:
			verifiers[p.Name] = p.verifier
		}
	}
	pluginpb.RegisterPluginServer(r, &server{list: list})
	if len(agents) > 0 {
		agentpb.RegisterAgentServer(r, agent.NewServer(agents))
	}
	if len(environments) > 0 {
		environmentpb.RegisterEnvironmentServer(r, environment.NewServer(environments))
		environmentpb.RegisterSurfaceServer(r, environment.NewSurfaceServer(environments))
	}
	if len(verifiers) > 0 {
		verifierpb.RegisterVerifierServer(r, verifier.NewServer(verifiers))
	}
}

// server answers what a binary is asked about itself.
type server struct {
	pluginpb.UnimplementedPluginServer

	list []Plugin
}

func (s *server) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.DescribeReply, error) {
	reply := &pluginpb.DescribeReply{}
	for _, p := range s.list {
		d, err := DescriptionToProto(p.Description)
		if err != nil {
			return nil, err
		}
		reply.Plugins = append(reply.Plugins, d)
	}
	return reply, nil
}

func (s *server) Validate(_ context.Context, r *pluginpb.ValidateRequest) (*pluginpb.ValidateReply, error) {
	kind, err := wire.Word[Kind]("kind", r.GetKind())
	if err != nil {
		return nil, err
	}
	for _, p := range s.list {
		if p.Kind == kind && p.Name == r.GetPlugin() {
			problems := p.Validate(r.GetConfigJson())
			if raw := r.GetSettingsJson(); len(raw) > 0 && len(problems) == 0 {
				problems = p.ValidateSettings(Settings{JSON: raw, Config: r.GetConfigJson(), Capture: r.GetCapture()})
			}
			reply := &pluginpb.ValidateReply{}
			for _, problem := range problems {
				reply.Problems = append(reply.Problems, wire.Encode(&pluginpb.ConfigProblem{}, problem))
			}
			return reply, nil
		}
	}
	return nil, fmt.Errorf("%s %q: %w", kind, r.GetPlugin(), fault.ErrUnknownPlugin)
}
