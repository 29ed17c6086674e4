package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/servetest"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// scripted is an agent whose sessions do what the test says.
type scripted struct {
	turn func(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error)
	end  func(logs string, r agent.Recorder) error
}

func (s scripted) Check(_ context.Context, r agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{Refusals: []string{string(r.Config)}}, nil
}

func (s scripted) Open(_ context.Context, setup agent.Setup) (agent.Session, error) {
	if setup.Session == "none" {
		return nil, nil
	}
	return s, nil
}

func (s scripted) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	return s.turn(ctx, m, r)
}

func (s scripted) Close(_ context.Context, logs string, r agent.Recorder) error {
	return s.end(logs, r)
}

// record keeps what a session records.
type record struct {
	mu    sync.Mutex
	items []string
	fail  error
}

func (r *record) add(s string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, s)
	return r.fail
}

func (r *record) Step(s trajectory.Step) error { return r.add("step " + s.Message.Text) }
func (r *record) Log(line string) error        { return r.add("log " + line) }
func (r *record) Artifact(path string) error   { return r.add("artifact " + path) }

func connect(t *testing.T, a agent.Agent) agent.Agent {
	t.Helper()
	conn := servetest.Dial(t, func(s *grpc.Server) { agentpb.RegisterAgentServer(s, agent.NewServer(map[string]agent.Agent{"it": a})) })
	return agent.NewClient(conn, "it")
}

func open(t *testing.T, a agent.Agent) agent.Session {
	t.Helper()
	s, err := connect(t, a).Open(t.Context(), agent.Setup{Role: agent.RoleAgent})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestATurnIsRecordedAsItHappens(t *testing.T) {
	t.Parallel()
	s := open(t, scripted{
		turn: func(_ context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
			err := errors.Join(
				r.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("one")}),
				r.Log("two\n"), r.Artifact("three"), r.Log("\xff"), r.Log(strings.Repeat("é", 40_000)))
			return agent.Yield{End: agent.Asked, Message: m.Text + "\xff", ExitCode: 7}, err
		},
		end: func(logs string, r agent.Recorder) error { return r.Log("closed with " + logs) },
	})
	r := &record{}
	y, err := s.Turn(t.Context(), agent.Message{Text: "hello", Turn: 1}, r)
	if err != nil || y.End != agent.Asked || y.Message != "hello\uFFFD" || y.ExitCode != 7 {
		t.Errorf("got %+v, %v", y, err)
	}
	if len(r.items) != 6 || r.items[0] != "step one" || r.items[1] != "log two" || r.items[2] != "artifact three" || r.items[3] != "log \uFFFD" {
		t.Errorf("recorded %.40q", r.items)
	}
	if got := strings.TrimPrefix(r.items[4], "log ") + strings.TrimPrefix(r.items[5], "log "); got != strings.Repeat("é", 40_000) {
		t.Error("a long line does not come in whole characters")
	}
	r.items = nil
	if err = s.Close(t.Context(), "/logs", r); err != nil || len(r.items) != 1 || r.items[0] != "log closed with /logs" {
		t.Errorf("Close = %v, recorded %q", err, r.items)
	}
	if err = s.Close(t.Context(), "", r); !errors.Is(err, agent.ErrNoSession) {
		t.Errorf("the second Close = %v, want ErrNoSession", err)
	}
	if _, err = s.Turn(t.Context(), agent.Message{}, r); !errors.Is(err, agent.ErrNoSession) {
		t.Errorf("Turn after Close = %v, want ErrNoSession", err)
	}
}

// A session that the host gives up while a call of it goes on is closed after that
// call.
func TestASessionThatIsGivenUpIsClosed(t *testing.T) {
	t.Parallel()
	busy, release, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := open(t, scripted{
		turn: func(context.Context, agent.Message, agent.Recorder) (agent.Yield, error) {
			close(busy)
			<-release // whatever becomes of its caller
			return agent.Yield{End: agent.Done}, nil
		},
		end: func(string, agent.Recorder) error {
			defer close(closed)
			panic("after all")
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-busy
		cancel()
	}()
	if _, err := s.Turn(ctx, agent.Message{}, &record{}); err == nil {
		t.Error("a cancelled turn has no error")
	}
	soon, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := s.Close(soon, "", &record{}); err == nil {
		t.Error("Close did not wait for the turn")
	}
	close(release)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the session was not closed")
	}
}

// A cancelled Turn returns to the core at once, and is still being carried out.
func TestCloseWaitsForATurnThatIsOnItsWayOut(t *testing.T) {
	t.Parallel()
	var turning atomic.Bool
	begun := make(chan struct{})
	s := open(t, scripted{
		turn: func(ctx context.Context, _ agent.Message, _ agent.Recorder) (agent.Yield, error) {
			turning.Store(true)
			defer turning.Store(false)
			close(begun)
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond) // it cleans up, for so long that who does not wait is seen
			return agent.Yield{End: agent.Done}, nil
		},
		end: func(_ string, r agent.Recorder) error { return r.Log(fmt.Sprint("turning: ", turning.Load())) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := s.Turn(ctx, agent.Message{}, &record{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Turn = %v, want Canceled", err)
	}
	r := &record{}
	if err := s.Close(t.Context(), "", r); err != nil || len(r.items) != 1 || r.items[0] != "log turning: false" {
		t.Errorf("Close = %v, recorded %q; want that the turn was over", err, r.items)
	}
}

func TestASessionThatNobodyHearsOfIsClosed(t *testing.T) {
	t.Parallel()
	closed, opening := make(chan error, 1), make(chan struct{})
	a := connect(t, slow{opening: opening, Session: scripted{end: func(_ string, r agent.Recorder) error {
		closed <- r.Log("a line")
		return nil
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-opening
		cancel()
	}()
	if _, err := a.Open(ctx, agent.Setup{Role: agent.RoleAgent}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open = %v, want Canceled", err)
	}
	if err := <-closed; err == nil {
		t.Error("the recorder of a session that nobody has takes lines")
	}
}

// slow opens its session only after the caller has given up.
type slow struct {
	agent.Session

	opening chan struct{}
}

func (slow) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{}, nil
}

func (s slow) Open(ctx context.Context, _ agent.Setup) (agent.Session, error) {
	close(s.opening)
	<-ctx.Done()
	return s.Session, nil
}

func TestARecorderThatFailsEndsTheTurn(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	s := open(t, scripted{turn: func(ctx context.Context, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
		if err := r.Log("first"); err != nil {
			return agent.Yield{}, err
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return agent.Yield{End: agent.Done}, nil
	}})
	full := errors.New("disk full")
	if _, err := s.Turn(t.Context(), agent.Message{}, &record{fail: full}); !errors.Is(err, full) {
		t.Errorf("Turn = %v, want the recorder's error", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the plugin's context = %v, want Canceled", err)
	}
}

func TestAStepThatIsTooLargeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := open(t, scripted{turn: func(_ context.Context, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
		return agent.Yield{End: agent.Done}, r.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text(strings.Repeat("x", 33<<20))})
	}})
	if _, err := s.Turn(t.Context(), agent.Message{}, &record{}); err == nil || !strings.Contains(err.Error(), "artifact") {
		t.Errorf("Turn = %.100v, want what to do with large content", err)
	}
	big := open(t, scripted{turn: func(_ context.Context, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
		return agent.Yield{End: agent.Done}, r.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text(strings.Repeat("x", 5<<20))})
	}})
	r := &record{}
	if _, err := big.Turn(t.Context(), agent.Message{}, r); err != nil || len(r.items) != 1 || len(r.items[0]) < 5<<20 {
		t.Errorf("a step of 5 MiB: %.100v, %d recorded", err, len(r.items))
	}
}

func TestBugsOfAPluginAreNamed(t *testing.T) {
	t.Parallel()
	a := connect(t, scripted{turn: func(context.Context, agent.Message, agent.Recorder) (agent.Yield, error) {
		return agent.Yield{End: "whenever"}, nil
	}})
	s, err := a.Open(t.Context(), agent.Setup{Role: agent.RoleAgent})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Turn(t.Context(), agent.Message{}, &record{}); !errors.Is(err, fault.ErrPanic) || !strings.Contains(err.Error(), "whenever") {
		t.Errorf("Turn = %v, want that the end is none", err)
	}
	if _, err = a.Open(t.Context(), agent.Setup{Role: agent.RoleAgent, Session: "none"}); !errors.Is(err, fault.ErrPanic) {
		t.Errorf("Open = %v, want that there is no session", err)
	}
	if _, err = a.Open(t.Context(), agent.Setup{}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("Open without a role = %v, want ErrInvalid", err)
	}
	if _, err = a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent, Config: json.RawMessage("{")}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("Check with a broken configuration = %v, want ErrInvalid", err)
	}
}

// other speaks the contract without our shim, as a plugin in another language.
type other struct {
	agentpb.UnimplementedAgentServer

	events []*agentpb.SessionEvent
}

func (other) Open(context.Context, *agentpb.OpenRequest) (*agentpb.OpenReply, error) {
	return &agentpb.OpenReply{Session: "s"}, nil
}

func (o other) Turn(_ *agentpb.TurnRequest, stream grpc.ServerStreamingServer[agentpb.SessionEvent]) error {
	for _, e := range o.events {
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	return nil
}

func TestWhatAForeignPluginMaySend(t *testing.T) {
	t.Parallel()
	yield := &agentpb.SessionEvent{Event: &agentpb.SessionEvent_Yield{Yield: &agentpb.AgentYield{End: agentpb.AgentEnd_AGENT_END_DONE}}}
	for _, tt := range []struct {
		name   string
		events []*agentpb.SessionEvent
		end    agent.End
		err    string
	}{
		{"a yield", []*agentpb.SessionEvent{yield}, agent.Done, ""},
		{"an event of a later version", []*agentpb.SessionEvent{{}, yield}, agent.Done, ""},
		{"no yield is a crash", nil, agent.Crashed, ""},
		{"something after the yield", []*agentpb.SessionEvent{yield, yield}, "", "after its yield"},
		{"a yield without an end", []*agentpb.SessionEvent{{Event: &agentpb.SessionEvent_Yield{}}}, "", "end is not given"},
		{"a step that is not JSON", []*agentpb.SessionEvent{{Event: &agentpb.SessionEvent_StepJson{StepJson: []byte("{")}}}, "", "step"},
	} {
		conn := servetest.Dial(t, func(s *grpc.Server) { agentpb.RegisterAgentServer(s, other{events: tt.events}) })
		s, err := agent.NewClient(conn, "it").Open(t.Context(), agent.Setup{Role: agent.RoleAgent})
		if err != nil {
			t.Fatal(err)
		}
		y, err := s.Turn(t.Context(), agent.Message{}, &record{})
		if y.End != tt.end || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %+v, %v; want end %q, error %q", tt.name, y, err, tt.end, tt.err)
		}
	}
}

func TestAnUnknownNameIsSaid(t *testing.T) {
	t.Parallel()
	conn := servetest.Dial(t, func(s *grpc.Server) { agentpb.RegisterAgentServer(s, agent.NewServer(nil)) })
	if _, err := agent.NewClient(conn, "it").Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent}); !errors.Is(err, fault.ErrUnknownPlugin) {
		t.Errorf("Check = %v, want ErrUnknownPlugin", err)
	}
}
