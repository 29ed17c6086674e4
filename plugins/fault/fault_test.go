package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
	"github.com/berth-eval/berth/plugins/verifier"
)

// sentinels are all errors that must survive the wire, by their reason.
var sentinels = map[string]error{
	"PANIC": fault.ErrPanic, "INVALID": fault.ErrInvalid, "UNKNOWN_PLUGIN": fault.ErrUnknownPlugin, "UNSUPPORTED": environment.ErrUnsupported,
	"BAD_CONFIG": agent.ErrBadConfig, "NO_SESSION": agent.ErrNoSession, "MODEL_UNAVAILABLE": agent.ErrModel,
	"NO_CAPACITY": environment.ErrNoCapacity, "BAD_IMAGE": environment.ErrBadImage, "BUILD_FAILED": environment.ErrBuildFailed,
	"REFUSED": environment.ErrRefused, "NO_SANDBOX": environment.ErrNoSandbox,
	"ARTIFACT_MISSING": verifier.ErrArtifactMissing, "BAD_REWARD": verifier.ErrBadReward, "BAD_REPLY": verifier.ErrBadReply,
}

// trouble is a plugin whose calls fail, or panic, as the test says.
type trouble struct {
	pluginpb.UnimplementedPluginServer
	agentpb.UnimplementedAgentServer

	err   error
	panic bool
	wait  bool
}

func (s *trouble) do(ctx context.Context) error {
	switch {
	case s.panic:
		panic("a bug")
	case s.wait:
		<-ctx.Done()
		return ctx.Err()
	}
	return s.err
}

func (s *trouble) Describe(ctx context.Context, _ *pluginpb.DescribeRequest) (*pluginpb.DescribeReply, error) {
	return nil, s.do(ctx)
}

func (s *trouble) Close(_ *agentpb.CloseRequest, stream grpc.ServerStreamingServer[agentpb.SessionEvent]) error {
	if err := stream.Send(&agentpb.SessionEvent{Event: &agentpb.SessionEvent_Log{Log: "before"}}); err != nil {
		return err
	}
	return s.do(stream.Context())
}

// dial serves s and returns its client.
func dial(t *testing.T, s *trouble, panicked func(context.Context, string, any, []byte)) grpc.ClientConnInterface {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(fault.ServerOptions(panicked)...)
	pluginpb.RegisterPluginServer(server, s)
	agentpb.RegisterAgentServer(server, s)
	go server.Serve(l) //nolint:errcheck // it ends with Stop
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return fault.Client(conn)
}

// unary and streaming make one call each.
func unary(ctx context.Context, conn grpc.ClientConnInterface) error {
	_, err := pluginpb.NewPluginClient(conn).Describe(ctx, &pluginpb.DescribeRequest{})
	return err
}

func streaming(ctx context.Context, conn grpc.ClientConnInterface) error {
	stream, err := agentpb.NewAgentClient(conn).Close(ctx, &agentpb.CloseRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

var calls = map[string]func(context.Context, grpc.ClientConnInterface) error{"unary": unary, "streaming": streaming}

func TestEverySentinelSurvivesTheWire(t *testing.T) {
	t.Parallel()
	for reason, want := range sentinels {
		for name, call := range calls {
			conn := dial(t, &trouble{err: fmt.Errorf("in the plugin: %w: 7 left", want)}, nil)
			err := call(t.Context(), conn)
			if !errors.Is(err, want) || err.Error() != "in the plugin: "+want.Error()+": 7 left" {
				t.Errorf("%s, %s: got %v, want %v with the plugin's own text", reason, name, err, want)
			}
			for other, sentinel := range sentinels {
				if other != reason && errors.Is(err, sentinel) {
					t.Errorf("%s, %s: is also %v", reason, name, sentinel)
				}
			}
		}
	}
}

// The .proto file is the specification for authors in other languages.
func TestTheReasonsAreThoseOfTheProto(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../proto/v1/plugin.proto")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^//   ([A-Z_]+) +\(([A-Z_]+)\) `).FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[1])
		sentinel := sentinels[m[1]]
		if sentinel == nil {
			t.Errorf("plugin.proto lists %s, which is in no table here", m[1])
			continue
		}
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(`"` + m[2] + `"`)); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
		if got := status.Code(fault.Plugin.Encode(sentinel)); got != code {
			t.Errorf("%s travels as %s, plugin.proto says %s", m[1], got, code)
		}
	}
	for reason := range sentinels {
		if !slices.Contains(listed, reason) {
			t.Errorf("plugin.proto does not list %s", reason)
		}
	}
}

func TestOtherErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		is   error // may be nil
		text string
	}{
		{"plain", errors.New("out of luck"), nil, "out of luck"},
		{"not UTF-8", errors.New("a\xffb"), nil, "a\uFFFDb"},
		{"very long", errors.New(strings.Repeat("x", 100_000)), nil, "xxx"},
		{"problems of a configuration", config.Problems{{Path: "size", Summary: "Too large"}}, agent.ErrBadConfig, "size: Too large"},
		{"a context of the plugin's own", fmt.Errorf("ask: %w", context.DeadlineExceeded), context.DeadlineExceeded, "ask: context deadline exceeded"},
		// What another server said to the plugin is not what the plugin says.
		{"a foreign status", status.Error(codes.Unavailable, "engine is away"), nil, "engine is away"},
		{"a foreign status with a reason", fmt.Errorf("create: %w: %w", environment.ErrNoCapacity, status.Error(codes.Unavailable, "away")), environment.ErrNoCapacity, "away"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, call := range calls {
				err := call(t.Context(), dial(t, &trouble{err: tt.err}, nil))
				if err == nil || !strings.Contains(err.Error(), tt.text) || len(err.Error()) > 5000 {
					t.Fatalf("%s: got %.200v, want %q", name, err, tt.text)
				}
				if tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("%s: got %v, want it to be %v", name, err, tt.is)
				}
				if errors.Is(err, fault.ErrUnavailable) {
					t.Errorf("%s: got %v, which says that the plugin is gone", name, err)
				}
			}
		})
	}
}

// A plugin without our library may send only a code.
func TestACodeWithoutAReason(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]error{
		codes.Canceled: context.Canceled, codes.DeadlineExceeded: context.DeadlineExceeded, codes.Unimplemented: environment.ErrUnsupported,
		codes.InvalidArgument: fault.ErrInvalid, codes.Unavailable: fault.ErrUnavailable,
	} {
		if err := fault.Plugin.Decode(status.Error(code, "words")); !errors.Is(err, want) || !strings.Contains(err.Error(), "words") {
			t.Errorf("%s: got %v, want %v", code, err, want)
		}
	}
	if err := fault.Plugin.Decode(nil); err != nil {
		t.Errorf("Decode(nil) = %v", err)
	}
	if err := fault.Plugin.Encode(nil); err != nil {
		t.Errorf("Encode(nil) = %v", err)
	}
}

func TestAPanicIsAnErrorOfItsCall(t *testing.T) {
	t.Parallel()
	for name, call := range calls {
		var method, stack string
		s := &trouble{panic: true}
		conn := dial(t, s, func(_ context.Context, m string, value any, trace []byte) {
			method, stack = fmt.Sprint(m, " ", value), string(trace)
		})
		err := call(t.Context(), conn)
		if !errors.Is(err, fault.ErrPanic) || !regexp.MustCompile(`panic in \w+: a bug \(fault_test.go:\d+\)$`).MatchString(err.Error()) {
			t.Errorf("%s: got %v, want ErrPanic with the place", name, err)
		}
		if !strings.Contains(method, "a bug") || !strings.Contains(stack, "trouble") {
			t.Errorf("%s: told %q and the stack\n%s", name, method, stack)
		}
		s.panic = false
		if err := call(t.Context(), conn); err != nil {
			t.Errorf("%s: the next call: %v", name, err)
		}
	}
}

func TestTheEndOfAContextIsThatOfTheCaller(t *testing.T) {
	t.Parallel()
	for name, call := range calls {
		conn := dial(t, &trouble{wait: true}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx, conn); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want DeadlineExceeded", name, err)
		}
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if err := call(ctx, conn); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want Canceled", name, err)
		}
		cancel()
	}
}

func TestAConnectionThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	conn, err := grpc.NewClient("passthrough:test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, io.ErrClosedPipe }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it never was open
	for name, call := range calls {
		if err := call(t.Context(), fault.Client(conn)); !errors.Is(err, fault.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", name, err)
		}
	}
}

// The server's clock for a deadline may ring first; then gRPC says "cancelled".
func TestADeadlineThatTheOtherSideSawFirstIsADeadline(t *testing.T) {
	t.Parallel()
	cancelled := status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := fault.Plugin.DecodeCall(ctx, cancelled); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "context deadline exceeded") {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	later, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	if err := fault.Plugin.DecodeCall(later, cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("long before the deadline: got %v, want Canceled", err)
	}
	if err := fault.Plugin.DecodeCall(later, nil); err != nil {
		t.Errorf("nil: got %v", err)
	}
}

func TestSentinelsOfASandboxSurviveTheWire(t *testing.T) {
	t.Parallel()
	for _, want := range []error{
		fault.ErrNoProgram, fault.ErrNotFound, fault.ErrDenied, fault.ErrNoRoom, fault.ErrTooLarge, fault.ErrUnsafe,
		fault.ErrExists, fault.ErrFrozen, fault.ErrRevoked, fault.ErrInvalid, fault.ErrTimeout, fault.ErrTampered, fault.ErrGone,
		context.Canceled, context.DeadlineExceeded,
	} {
		text := fmt.Sprintf("start %q: %v", "x", want)
		got := fault.Sandbox.Decode(overWire(fault.Sandbox.Encode(fmt.Errorf("start %q: %w", "x", want))))
		if !errors.Is(got, want) || got.Error() != text {
			t.Errorf("got %v (is %v: %v), want %q", got, want, errors.Is(got, want), text)
		}
	}
}

func TestSentinelsOfASandboxSurviveAMessage(t *testing.T) {
	t.Parallel()
	for _, want := range []error{fault.ErrNotFound, fault.ErrUnsafe, fault.ErrTooLarge} {
		err := fmt.Errorf("read: %w", want)
		if got := fault.Sandbox.Join(fault.Sandbox.Parts(err)); !errors.Is(got, want) || got.Error() != err.Error() {
			t.Errorf("got %v, want %v", got, err)
		}
	}
	if got := fault.Sandbox.Join(fault.Sandbox.Parts(errors.New("disk on fire"))); got == nil || got.Error() != "disk on fire" {
		t.Errorf("got %v, want the text", got)
	}
	if fault.Sandbox.Join(fault.Sandbox.Parts(nil)) != nil {
		t.Error("nil became an error")
	}
}

func TestBrokenConnectionIsGone(t *testing.T) {
	t.Parallel()
	if err := fault.Sandbox.Decode(status.Error(codes.Unavailable, "EOF")); !errors.Is(err, fault.ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}

func TestOtherErrorsOfASandboxKeepTheirText(t *testing.T) {
	t.Parallel()
	err := fault.Sandbox.Decode(overWire(fault.Sandbox.Encode(errors.New("disk on fire"))))
	if err == nil || err.Error() != "disk on fire" {
		t.Errorf("got %v, want the text", err)
	}
	if fault.Sandbox.Encode(nil) != nil || fault.Sandbox.Decode(nil) != nil {
		t.Error("nil became an error")
	}
}

// overWire is what gRPC does to a status.
func overWire(err error) error {
	s, _ := status.FromError(err)
	return status.FromProto(s.Proto()).Err()
}
