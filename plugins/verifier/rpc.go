package verifier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/verifierpb"
)

// Capabilities returns the capabilities of v beyond Verify, sorted by name.
func Capabilities(v Verifier) []string {
	if _, ok := v.(Rewriter); ok {
		return []string{CapabilityRewrite}
	}
	return nil
}

// NewServer returns the gRPC service of the verifiers, by name. An interceptor
// must encode the errors that its methods return; plugins.Serve installs it.
func NewServer(verifiers map[string]Verifier) verifierpb.VerifierServer {
	return &server{verifiers: verifiers}
}

type server struct {
	verifierpb.UnimplementedVerifierServer
	verifiers map[string]Verifier
}

func (s *server) verifier(name string) (Verifier, error) {
	v, ok := s.verifiers[name]
	if !ok {
		return nil, fmt.Errorf("verifier %q: %w", name, fault.ErrUnknownPlugin)
	}
	return v, nil
}

func (s *server) Verify(r *verifierpb.VerifyRequest, stream grpc.ServerStreamingServer[verifierpb.VerifyEvent]) error {
	v, err := s.verifier(r.GetPlugin())
	if err != nil {
		return err
	}
	in, err := wire.Decode[Request](r.GetRequest())
	if err != nil {
		return err
	}
	log := &logger{stream: stream}
	verdict, err := v.Verify(stream.Context(), in, log.line)
	log.close()
	if err != nil {
		return err
	}
	out := wire.Encode(&verifierpb.Verdict{}, verdict)
	if _, err := wire.Decode[Verdict](out); err != nil {
		if errors.Is(err, ErrBadReward) {
			return err
		}
		return fmt.Errorf("%w: the verdict of %q is invalid: %w", fault.ErrPanic, r.GetPlugin(), err)
	}
	return stream.Send(&verifierpb.VerifyEvent{Event: &verifierpb.VerifyEvent_Verdict{Verdict: out}})
}

// logger sends lines until it is closed. Lines that a goroutine of the plugin
// logs later are dropped.
type logger struct {
	mu     sync.Mutex
	stream grpc.ServerStreamingServer[verifierpb.VerifyEvent]
	closed bool
}

func (l *logger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *logger) line(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, piece := range wire.Lines(line) {
		if l.closed || l.stream.Send(&verifierpb.VerifyEvent{Event: &verifierpb.VerifyEvent_Log{Log: piece}}) != nil {
			return
		}
	}
}

func (s *server) Rewrite(ctx context.Context, r *verifierpb.RewriteRequest) (*verifierpb.RewriteReply, error) {
	v, err := s.verifier(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	rewriter, ok := v.(Rewriter)
	if !ok {
		return nil, fmt.Errorf("verifier %q: rewrite: %w", r.GetPlugin(), fault.ErrUnsupported)
	}
	in, err := wire.Decode[Request](r.GetRequest())
	if err != nil {
		return nil, err
	}
	verdict, err := wire.Decode[Verdict](r.GetVerdict())
	if err != nil {
		return nil, err
	}
	message, err := rewriter.Rewrite(ctx, in, verdict, r.GetCandidate())
	if err != nil {
		return nil, err
	}
	return &verifierpb.RewriteReply{Message: wire.Text(message)}, nil
}

// NewClient returns the verifier of that name behind conn. An interceptor of
// conn must decode the errors. The value is a Rewriter if capabilities, from
// Describe, include it.
func NewClient(conn grpc.ClientConnInterface, plugin string, capabilities []string) Verifier {
	c := &client{rpc: verifierpb.NewVerifierClient(conn), plugin: plugin}
	if slices.Contains(capabilities, CapabilityRewrite) {
		return rewritingClient{c}
	}
	return c
}

type client struct {
	rpc    verifierpb.VerifierClient
	plugin string
}

func (c *client) Verify(ctx context.Context, r Request, log func(line string)) (Verdict, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream on every return
	defer cancel()
	stream, err := c.rpc.Verify(ctx, &verifierpb.VerifyRequest{Plugin: c.plugin, Request: wire.Encode(&verifierpb.VerifierRequest{}, r)})
	if err != nil {
		return Verdict{}, err
	}
	var verdict *verifierpb.Verdict
	for {
		e, end := stream.Recv()
		if errors.Is(end, io.EOF) {
			break
		}
		if end != nil {
			return Verdict{}, end
		}
		if verdict != nil {
			return Verdict{}, wire.Invalid("verifier %q sent something after its verdict", c.plugin)
		}
		switch e := e.GetEvent().(type) {
		case *verifierpb.VerifyEvent_Log:
			log(e.Log)
		case *verifierpb.VerifyEvent_Verdict:
			verdict = e.Verdict
		default: // an event of a later version
		}
	}
	if verdict == nil {
		return Verdict{}, wire.Invalid("verifier %q ended without a verdict", c.plugin)
	}
	out, err := wire.Decode[Verdict](verdict)
	if err != nil {
		return Verdict{}, fmt.Errorf("verdict of %q: %w", c.plugin, err)
	}
	return out, nil
}

type rewritingClient struct{ *client }

func (c rewritingClient) Rewrite(ctx context.Context, r Request, v Verdict, candidate string) (string, error) {
	reply, err := c.rpc.Rewrite(ctx, &verifierpb.RewriteRequest{
		Plugin: c.plugin, Request: wire.Encode(&verifierpb.VerifierRequest{}, r), Verdict: wire.Encode(&verifierpb.Verdict{}, v), Candidate: wire.Text(candidate),
	})
	return reply.GetMessage(), err
}
