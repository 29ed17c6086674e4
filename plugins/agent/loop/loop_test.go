package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
	"github.com/berth-eval/berth/plugins/trajectory"
)

type options struct {
	Greeting string `berth:"greeting" default:"hello" doc:"What to say."`
}

// talker says its greeting to the model until the model says "stop".
type talker struct{ s *loop.Session[options] }

func (w *talker) Turn(ctx context.Context, _ agent.Message, r *loop.Recorder) (agent.Yield, error) {
	for {
		reply, err := r.Ask(ctx, w.s.Model, chat.Request{Messages: []chat.Message{{Role: chat.User, Text: w.s.Config.Greeting}}})
		if err != nil {
			return agent.Yield{}, err
		}
		step := r.Of(reply, reply.Text)
		if err := loop.Call(&step, "c", "say", map[string]string{"text": w.s.Config.Greeting}); err != nil {
			return agent.Yield{}, err
		}
		loop.Observe(&step, "c", "said")
		if err := r.Step(step); err != nil {
			return agent.Yield{}, err
		}
		if reply.Text == "stop" {
			return agent.Yield{End: agent.Done}, nil
		}
	}
}

func (w *talker) Close(context.Context, *loop.Recorder) error { return nil }

func scaffold() loop.Agent[options] {
	return loop.Agent[options]{New: func(_ context.Context, s *loop.Session[options]) (loop.Worker, error) { return &talker{s}, nil }}
}

type record struct{ steps []trajectory.Step }

func (r *record) Step(s trajectory.Step) error { r.steps = append(r.steps, s); return nil }
func (r *record) Log(string) error             { return nil }
func (r *record) Artifact(string) error        { return nil }

func open(t *testing.T, limits agent.Limits, texts ...string) agent.Session {
	t.Helper()
	m := chattest.Serve(t, model.DialectOpenAIChat, chattest.Script(texts...))
	s, err := scaffold().Open(t.Context(), agent.Setup{
		Shell: "unix:" + filepath.Join(t.TempDir(), "none"), Models: map[string]model.Endpoint{loop.DefaultModel: m.Endpoint}, Limits: limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background(), "", &record{}) })
	return s
}

func TestATurnIsRecordedAsAValidTrajectory(t *testing.T) {
	t.Parallel()
	r := &record{}
	y, err := open(t, agent.Limits{}, "stop").Turn(t.Context(), agent.Message{Turn: 1}, r)
	if err != nil || y.End != agent.Done || len(r.steps) != 1 {
		t.Fatalf("got %+v, %v with %d steps", y, err, len(r.steps))
	}
	r.steps[0].StepID = 1
	b, err := json.Marshal(trajectory.Trajectory{Agent: trajectory.Agent{Name: "a", Version: "1"}, Steps: r.steps})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range trajectory.Validate(b) {
		t.Error(v)
	}
	if m := r.steps[0].Metrics; m == nil || m.PromptTokens == nil || r.steps[0].ModelName != "test-model-1" {
		t.Errorf("step %+v has no usage, or not the provider's name of the model", r.steps[0])
	}
	if string(r.steps[0].Extra) != `{"stop_reason":"stop"}` {
		t.Errorf("why the model stopped: %s", r.steps[0].Extra)
	}
}

func TestBrokenArgumentsOfAModelAreAnswered(t *testing.T) {
	t.Parallel()
	var args struct {
		Command string `berth:"command" required:"true" doc:"What to run."`
	}
	for text, want := range map[string]string{
		`{"command": "ls`:     "wrong",
		`["ls"]`:              "wrong",
		`"ls"`:                "wrong",
		`{"command": 1}`:      "command",
		`{"comand": "ls"}`:    "comand",
		``:                    "command",
		"\xff":                "wrong",
		`{"command": "echo"}`: "",
	} {
		step := trajectory.Step{StepID: 1, Source: trajectory.Model, Message: trajectory.Text("")}
		answer := loop.Arguments(&step, chat.Call{ID: "c", Name: "run", Arguments: json.RawMessage(text)}, &args)
		switch {
		case want == "" && (answer != nil || args.Command != "echo"):
			t.Errorf("%s: got %+v and %+v; want it decoded", text, answer, args)
		case want != "" && (answer == nil || !answer.Failed || answer.CallID != "c" || !strings.Contains(answer.Text, want)):
			t.Errorf("%s: got %+v; want an answer with %q", text, answer, want)
		}
		b, err := json.Marshal(trajectory.Trajectory{Agent: trajectory.Agent{Name: "a", Version: "1"}, Steps: []trajectory.Step{step}})
		if err != nil || len(step.ToolCalls) != 1 {
			t.Fatalf("%s: %v, %d calls in the step", text, err, len(step.ToolCalls))
		}
		for _, v := range trajectory.Validate(b) {
			t.Errorf("%s: %v", text, v)
		}
	}
}

func TestTheLimitOfStepsEndsATurn(t *testing.T) {
	t.Parallel()
	r := &record{}
	y, err := open(t, agent.Limits{MaxSteps: 3}, "more").Turn(t.Context(), agent.Message{Turn: 1}, r)
	if err != nil || y.End != agent.MaxSteps || len(r.steps) != 3 {
		t.Errorf("got %+v, %v with %d steps; want max_steps after 3", y, err, len(r.steps))
	}
}

func TestATurnThatIsCutOffEndsWithTheCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if _, err := open(t, agent.Limits{}, "more").Turn(ctx, agent.Message{Turn: 1}, &record{}); !errors.Is(err, over) {
		t.Errorf("got %v; want the cause", err)
	}
}

func TestCheckAndOpenSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	a := scaffold()
	if _, err := a.Check(t.Context(), agent.CheckRequest{Config: json.RawMessage(`{"greting": "x"}`)}); !errors.Is(err, agent.ErrBadConfig) || !strings.Contains(err.Error(), "greting") {
		t.Errorf("got %v; want the unknown key", err)
	}
	needs, err := a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleUser})
	if err != nil || len(needs.Refusals) != 1 || !needs.Shell || len(needs.Dialects) == 0 {
		t.Errorf("got %+v, %v; want one refusal", needs, err)
	}
	if _, err := a.Open(t.Context(), agent.Setup{}); !errors.Is(err, agent.ErrBadConfig) || !strings.Contains(err.Error(), "no model") {
		t.Errorf("got %v; want that there is no model", err)
	}
}

// A worker without a shell can play the user, and gets none.
func TestALoopWithoutAShellPlaysTheUser(t *testing.T) {
	t.Parallel()
	a := scaffold()
	a.NoShell = true
	a.New = func(_ context.Context, s *loop.Session[options]) (loop.Worker, error) {
		if s.Shell != nil {
			t.Error("it has a shell")
		}
		return &talker{s}, nil
	}
	needs, err := a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleUser})
	if err != nil || len(needs.Refusals) > 0 || needs.Shell || len(needs.Dialects) == 0 {
		t.Errorf("got %+v, %v; want no shell and no refusal", needs, err)
	}
	m := chattest.Serve(t, model.DialectOpenAIChat, chattest.Script("stop"))
	s, err := a.Open(t.Context(), agent.Setup{Role: agent.RoleUser, Models: map[string]model.Endpoint{loop.DefaultModel: m.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	if y, err := s.Turn(t.Context(), agent.Message{Turn: 1}, &record{}); err != nil || y.End != agent.Done {
		t.Errorf("got %+v, %v", y, err)
	}
	if err := s.Close(t.Context(), "", &record{}); err != nil {
		t.Error(err)
	}
}

func TestPicturesComeFromTheViewOnly(t *testing.T) {
	t.Parallel()
	view := t.TempDir()
	for name, text := range map[string]string{"a.png": "\x89PNG\r\n\x1a\n....", "b.txt": "text"} {
		if err := os.WriteFile(filepath.Join(view, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := loop.Images(view, []string{"a.png"}); err != nil || len(got) != 1 || got[0].MediaType != "image/png" {
		t.Errorf("got %+v, %v; want a png", got, err)
	}
	for name, want := range map[string]string{"b.txt": "models take", "../x.png": "not in the view", "c.png": "no such file"} {
		if _, err := loop.Images(view, []string{name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", name, err, want)
		}
	}
}

func TestPriorTellsTheNewestSteps(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "t.json")
	text := `{"agent": {"name": "a", "version": "1"}, "steps": [
		{"step_id": 1, "source": "user", "message": "` + strings.Repeat("old ", 300) + `"},
		{"step_id": 2, "source": "agent", "message": "new", "tool_calls": [{"tool_call_id": "1", "function_name": "f", "arguments": {"x": 1}}],
		 "observation": {"results": [{"source_call_id": "1", "content": "seen"}]}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := loop.Prior(file, 500)
	if err != nil || !strings.Contains(got, "called f") || !strings.Contains(got, "saw: seen") || strings.Contains(got, "old") || !strings.Contains(got, "left out") {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err = loop.Prior("", 500); got != "" || err != nil {
		t.Errorf("without one: got %q, %v", got, err)
	}
}
