package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// NewServer returns the gRPC service of the agents, by name. An interceptor
// must encode the errors that its methods return; plugins.Serve installs it.
func NewServer(agents map[string]Agent) agentpb.AgentServer {
	return &server{agents: agents, sessions: map[sessionKey]*served{}}
}

type server struct {
	agentpb.UnimplementedAgentServer
	agents map[string]Agent

	mu       sync.Mutex
	sessions map[sessionKey]*served
}

type sessionKey struct{ plugin, id string }

// served is a session with a lock for its calls: a cancelled call may still be
// running when the next one arrives.
type served struct {
	Session

	turn chan struct{}
}

// enter waits until no call of the session is running.
func (s *served) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the call before this one to end: %w", ctx.Err())
	}
}

// abandon closes a session that has no caller any more, after the call that is
// running.
func (s *served) abandon(ctx context.Context) {
	defer func() { _ = recover() }() // as for a call, the other sessions continue
	s.turn <- struct{}{}
	_ = s.Close(ctx, "", nobody{}) // its caller is gone
}

func (s *server) agent(name string) (Agent, error) {
	a, ok := s.agents[name]
	if !ok {
		return nil, fmt.Errorf("agent %q: %w", name, fault.ErrUnknownPlugin)
	}
	return a, nil
}

// session looks up a session; gone also removes it.
func (s *server) session(plugin, id string, gone bool) (*served, error) {
	if _, err := s.agent(plugin); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := sessionKey{plugin, id}
	session, ok := s.sessions[k]
	if !ok {
		return nil, fmt.Errorf("session %q of agent %q: %w", id, plugin, ErrNoSession)
	}
	if gone {
		delete(s.sessions, k)
	}
	return session, nil
}

func (s *server) Check(ctx context.Context, r *agentpb.AgentCheckRequest) (*agentpb.AgentCheckReply, error) {
	a, err := s.agent(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	in, err := wire.Decode[CheckRequest](r)
	if err != nil {
		return nil, err
	}
	needs, err := a.Check(ctx, in)
	if err != nil {
		return nil, err
	}
	return &agentpb.AgentCheckReply{Needs: wire.Encode(&agentpb.AgentNeeds{}, needs)}, nil
}

func (s *server) Open(ctx context.Context, r *agentpb.OpenRequest) (*agentpb.OpenReply, error) {
	a, err := s.agent(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	setup, err := wire.Decode[Setup](r.GetSetup())
	if err != nil {
		return nil, err
	}
	session, err := a.Open(ctx, setup)
	if err != nil {
		return nil, err
	}
	if session == nil {
		return nil, fmt.Errorf("%w: agent %q opened no session and gave no error", fault.ErrPanic, r.GetPlugin())
	}
	if ctx.Err() != nil { // the caller is gone and will not close the session
		return nil, errors.Join(ctx.Err(), session.Close(context.WithoutCancel(ctx), "", nobody{}))
	}
	id := rand.Text()
	s.mu.Lock()
	s.sessions[sessionKey{r.GetPlugin(), id}] = &served{session, make(chan struct{}, 1)}
	s.mu.Unlock()
	return &agentpb.OpenReply{Session: id}, nil
}

func (s *server) Turn(r *agentpb.TurnRequest, stream grpc.ServerStreamingServer[agentpb.SessionEvent]) error {
	session, err := s.session(r.GetPlugin(), r.GetSession(), false)
	if err != nil {
		return err
	}
	m, err := wire.Decode[Message](r.GetMessage())
	if err != nil {
		return err
	}
	leave, err := session.enter(stream.Context())
	if err != nil {
		return err
	}
	defer leave()
	out := &sender{stream: stream}
	defer out.close()
	y, err := session.Turn(stream.Context(), m, out)
	if err != nil {
		return err
	}
	if wire.Number[agentpb.AgentEnd](y.End) == 0 {
		return fmt.Errorf("%w: agent %q yielded with end %q, which is none of the ends", fault.ErrPanic, r.GetPlugin(), y.End)
	}
	return out.send(&agentpb.SessionEvent{Event: &agentpb.SessionEvent_Yield{Yield: wire.Encode(&agentpb.AgentYield{}, y)}})
}

func (s *server) Close(r *agentpb.CloseRequest, stream grpc.ServerStreamingServer[agentpb.SessionEvent]) error {
	session, err := s.session(r.GetPlugin(), r.GetSession(), true)
	if err != nil {
		return err
	}
	leave, err := session.enter(stream.Context())
	if err != nil {
		go session.abandon(context.WithoutCancel(stream.Context()))
		return err
	}
	defer leave()
	out := &sender{stream: stream}
	defer out.close()
	return session.Close(stream.Context(), r.GetLogs(), out)
}

// sender is the Recorder of a plugin. A goroutine of the plugin that records
// after its call has returned gets an error and does not break the stream.
type sender struct {
	mu     sync.Mutex
	stream grpc.ServerStreamingServer[agentpb.SessionEvent]
	closed bool
}

var errRecorderClosed = errors.New("the call that this recorder belongs to has returned")

func (s *sender) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *sender) send(e *agentpb.SessionEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errRecorderClosed
	}
	return s.stream.Send(e)
}

func (s *sender) Step(step trajectory.Step) error {
	b, err := json.Marshal(step)
	if err != nil {
		return fmt.Errorf("record a step: %w", err)
	}
	if len(b) >= fault.MaxMessage {
		return fmt.Errorf("record a step: it has %d MiB, the limit is %d MiB: put large content into a file of the scratch folder, record that as an artifact, and name it by path",
			len(b)>>20, fault.MaxMessage>>20)
	}
	return s.send(&agentpb.SessionEvent{Event: &agentpb.SessionEvent_StepJson{StepJson: b}})
}

func (s *sender) Log(line string) error {
	for _, piece := range wire.Lines(line) {
		if err := s.send(&agentpb.SessionEvent{Event: &agentpb.SessionEvent_Log{Log: piece}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) Artifact(path string) error {
	return s.send(&agentpb.SessionEvent{Event: &agentpb.SessionEvent_Artifact{Artifact: wire.Text(path)}})
}

// nobody is the Recorder for closing a session whose caller is gone.
type nobody struct{}

func (nobody) Step(trajectory.Step) error { return errRecorderClosed }
func (nobody) Log(string) error           { return errRecorderClosed }
func (nobody) Artifact(string) error      { return errRecorderClosed }

// NewClient returns the agent of that name behind conn. An interceptor of conn
// must decode the errors.
func NewClient(conn grpc.ClientConnInterface, plugin string) Agent {
	return &client{rpc: agentpb.NewAgentClient(conn), plugin: plugin}
}

type client struct {
	rpc    agentpb.AgentClient
	plugin string
}

func (c *client) Check(ctx context.Context, r CheckRequest) (Needs, error) {
	reply, err := c.rpc.Check(ctx, wire.Encode(&agentpb.AgentCheckRequest{Plugin: c.plugin}, r))
	if err != nil {
		return Needs{}, err
	}
	return wire.Decode[Needs](reply.GetNeeds())
}

func (c *client) Open(ctx context.Context, setup Setup) (Session, error) {
	reply, err := c.rpc.Open(ctx, &agentpb.OpenRequest{Plugin: c.plugin, Setup: wire.Encode(&agentpb.SessionSetup{}, setup)})
	if err != nil {
		return nil, err
	}
	if reply.GetSession() == "" {
		return nil, wire.Invalid("agent %q opened a session without an id", c.plugin)
	}
	return &clientSession{client: c, id: reply.GetSession()}, nil
}

type clientSession struct {
	*client
	id string
}

func (s *clientSession) Turn(ctx context.Context, m Message, r Recorder) (Yield, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream on every return
	defer cancel()
	stream, err := s.rpc.Turn(ctx, &agentpb.TurnRequest{Plugin: s.plugin, Session: s.id, Message: wire.Encode(&agentpb.TurnMessage{}, m)})
	if err != nil {
		return Yield{}, err
	}
	y, err := s.receive(stream, r)
	if err != nil {
		return Yield{}, err
	}
	if y == nil {
		return Yield{End: Crashed, Reason: "the plugin ended the turn without a yield"}, nil
	}
	out, err := yieldFromProto(y)
	if err != nil {
		return Yield{}, fmt.Errorf("yield of agent %q: %w", s.plugin, err)
	}
	return out, nil
}

func (s *clientSession) Close(ctx context.Context, logs string, r Recorder) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.rpc.Close(ctx, &agentpb.CloseRequest{Plugin: s.plugin, Session: s.id, Logs: logs})
	if err != nil {
		return err
	}
	y, err := s.receive(stream, r)
	if err == nil && y != nil {
		err = wire.Invalid("agent %q yielded while it was closed", s.plugin)
	}
	return err
}

// receive records the events until the stream ends and returns the yield, or
// nil if there was none.
func (s *clientSession) receive(stream grpc.ServerStreamingClient[agentpb.SessionEvent], r Recorder) (*agentpb.AgentYield, error) {
	var yield *agentpb.AgentYield
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return yield, nil
		}
		if err != nil {
			return nil, err
		}
		if yield != nil {
			return nil, wire.Invalid("agent %q sent something after its yield", s.plugin)
		}
		switch e := e.GetEvent().(type) {
		case *agentpb.SessionEvent_StepJson:
			var step trajectory.Step
			if bad := json.Unmarshal(e.StepJson, &step); bad != nil {
				return nil, wire.Invalid("step of agent %q: %v", s.plugin, bad)
			}
			err = r.Step(step)
		case *agentpb.SessionEvent_Log:
			err = r.Log(e.Log)
		case *agentpb.SessionEvent_Artifact:
			err = r.Artifact(e.Artifact)
		case *agentpb.SessionEvent_Yield:
			yield = e.Yield
		default: // an event of a later version
		}
		if err != nil {
			return nil, fmt.Errorf("record what agent %q did: %w", s.plugin, err)
		}
	}
}
