package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
	"github.com/berth-eval/berth/plugins/trajectory"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

type record struct {
	mu        sync.Mutex
	steps     []trajectory.Step
	artifacts []string
}

func (r *record) Step(s trajectory.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.StepID = int64(len(r.steps) + 1)
	r.steps = append(r.steps, s)
	return nil
}
func (r *record) Log(string) error { return nil }
func (r *record) Artifact(path string) error {
	r.artifacts = append(r.artifacts, path)
	return nil
}

// fixture is a worker with a model that says what the test wants, in a real
// sandbox.
type fixture struct {
	*record

	t       *testing.T
	worker  *worker
	model   *chattest.Server
	box     *sandbox.Client
	scratch string
	turns   int
}

func newFixture(t *testing.T, conf string, setup agent.Setup, answer func(chattest.Question) chattest.Answer) *fixture {
	t.Helper()
	l := &fixture{record: &record{}, t: t, scratch: t.TempDir()}
	l.box = sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	if answer != nil {
		l.model = chattest.Serve(t, model.DialectOpenAIChat, answer)
	}
	setup.Scratch, setup.Workdir = l.scratch, "/tmp"
	s := &loop.Session[Config]{Setup: setup, Shell: l.box}
	if ps := config.Validate(json.RawMessage(conf), &s.Config); len(ps) > 0 {
		t.Fatal(ps)
	}
	client, err := chat.Dial(l.model.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s.Model = client
	if l.worker, err = newWorker(s); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *fixture) turn(text string) agent.Yield {
	l.t.Helper()
	l.turns++
	ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Minute)
	defer cancel()
	y, err := l.worker.Turn(ctx, agent.Message{Turn: l.turns, Text: text}, loop.NewRecorder(l.record, "m", 0))
	if err != nil {
		l.t.Fatalf("turn %d: %v", l.turns, err)
	}
	return y
}

// close ends the session, and checks what it leaves.
func (l *fixture) close() {
	l.t.Helper()
	if err := l.worker.Close(l.t.Context(), nil); err != nil {
		l.t.Error(err)
	}
	b, err := json.Marshal(trajectory.Trajectory{Agent: trajectory.Agent{Name: name, Version: version}, Steps: l.steps})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, v := range trajectory.Validate(b) {
		l.t.Error(v)
	}
	for _, a := range l.artifacts {
		text, err := os.ReadFile(filepath.Join(l.scratch, a))
		if err != nil {
			l.t.Error(err)
		}
		if strings.HasPrefix(a, "trajectory.") {
			for _, v := range trajectory.Validate(text) {
				l.t.Errorf("%s: %s", a, v)
			}
		}
	}
}

// saw is what the model was shown after its reply number n, from 1.
func (l *fixture) saw(n int) string {
	l.t.Helper()
	q := l.model.Questions()
	if n >= len(q) {
		l.t.Fatalf("the model was asked %d times only", len(q))
	}
	return q[n].Last
}

func (l *fixture) read(path string) string {
	b, err := l.box.ReadFile(l.t.Context(), path, 1<<20)
	if err != nil {
		l.t.Error(err)
	}
	return string(b)
}

// typing is a reply that types; keystrokes and seconds alternate.
func typing(pairs ...any) string {
	commands := []map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		commands = append(commands, map[string]any{"keystrokes": pairs[i], "duration": pairs[i+1]})
	}
	b, err := json.Marshal(map[string]any{"commands": commands})
	if err != nil {
		panic(err)
	}
	return `{"analysis": "a", "plan": "p", ` + string(b[1:])
}

const complete = `{"analysis": "All is done.", "plan": "", "commands": [], "task_complete": true}`

func TestAFileIsWrittenAndTheEndConfirmed(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{}`, agent.Setup{}, chattest.Script(typing("echo 42 > answer.txt\n", 2, "cat answer.txt\n", 2), complete, typing("ls\n", 0.2), complete, complete))
	y := l.turn("Write 42.")
	if y.End != agent.Done || y.Message != "All is done." {
		t.Errorf("got %+v; want done", y)
	}
	if got := l.read("/tmp/answer.txt"); got != "42\n" {
		t.Errorf("the file holds %q", got)
	}
	if first := l.model.Questions()[0].Last; !strings.Contains(first, "Write 42.") || !strings.Contains(first, "40 lines of 160") {
		t.Errorf("the first prompt is %q", first)
	}
	if got := l.saw(1); !strings.HasPrefix(got, "New in the terminal:") || !strings.Contains(got, "cat answer.txt\n42\n") {
		t.Errorf("after the commands: %q", got)
	}
	if got := l.saw(2); !strings.Contains(got, "say again that the task is complete") {
		t.Errorf("after the first time: %q", got)
	}
	if len(l.steps) != 5 || l.steps[0].ToolCalls[1].ID != "call_1_2" || l.steps[0].Metrics == nil {
		t.Errorf("steps %+v", l.steps)
	}
	l.close()
}

// What is typed together with the command that reads it is read, line by line.
func TestAProgramGetsWhatIsTypedAhead(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{}`, agent.Setup{}, chattest.Script(
		typing("cat > a.txt\nhello\nworld\n", 3, "C-d", 2, "sh -c 'read x; read y; echo \"<$x $y>\" > b.txt'\none\ntwo\n", 3), complete, complete))
	l.turn("Go.")
	if a, b := l.read("/tmp/a.txt"), l.read("/tmp/b.txt"); a != "hello\nworld\n" || b != "<one two>\n" {
		t.Errorf("the files hold %q and %q", a, b)
	}
	l.close()
}

func TestAnEditorIsUsed(t *testing.T) {
	t.Parallel()
	editor := ""
	for _, e := range []string{"vi", "vim", "nano"} {
		if _, err := exec.LookPath(e); err == nil {
			editor = e
			break
		}
	}
	script := []string{
		typing(editor+" /tmp/note.txt\n", 4),
		typing("ihello from the editor", 1, "Escape", 1, ":wq\n", 3),
		complete,
	}
	switch editor {
	case "":
		t.Skip(testlevel.Missing("an editor", "vim-tiny"))
	case "nano":
		script[1] = typing("hello from the editor", 1, "C-o", 1, "Enter", 1, "C-x", 3)
	}
	l := newFixture(t, `{}`, agent.Setup{}, chattest.Script(script...))
	l.turn("Edit.")
	if got := l.read("/tmp/note.txt"); got != "hello from the editor\n" {
		t.Errorf("the file holds %q; the editor showed\n%s", got, l.saw(1))
	}
	if got := l.saw(1); !strings.HasPrefix(got, "The terminal shows:") {
		t.Errorf("in the editor: %q; want the whole screen", got)
	}
	l.close()
}

func TestAReplyThatCannotBeUsedTypesNothing(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{}`, agent.Setup{}, func(q chattest.Question) chattest.Answer {
		switch q.Turns {
		case 0:
			return chattest.Answer{Text: "I will do it."}
		case 1:
			return chattest.Answer{Text: typing("touch /tmp/half\n", 0.2), Stop: chat.Length}
		}
		return chattest.Answer{Text: complete}
	})
	l.turn("Go.")
	if got := l.saw(1); !strings.Contains(got, "no JSON object") {
		t.Errorf("after no JSON: %q", got)
	}
	if got := l.saw(2); !strings.Contains(got, "cut off") {
		t.Errorf("after a cut reply: %q", got)
	}
	if _, err := l.box.Stat(t.Context(), "/tmp/half"); err == nil {
		t.Error("what was cut off was typed")
	}
	l.close()
}

func TestAModelThatNeverFindsTheFormIsGivenUp(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{}`, agent.Setup{}, chattest.Script("hello"))
	if y := l.turn("Go."); y.End != agent.Crashed || !strings.Contains(y.Reason, "10 replies in a row") || len(l.steps) != maxBad {
		t.Errorf("got %+v after %d steps", y, len(l.steps))
	}
	l.close()
}

func TestMaxTurnsEndsTheSession(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{"max_turns": 2}`, agent.Setup{}, chattest.Script(typing("", 0)))
	if y := l.turn("Go."); y.End != agent.MaxSteps || len(l.steps) != 2 {
		t.Errorf("got %+v after %d steps", y, len(l.steps))
	}
	l.close()
}

func TestAShellThatEndsIsBegunAnew(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{}`, agent.Setup{}, chattest.Script(typing("exit 7\n", 3), typing("echo again > /tmp/again\n", 2), complete))
	l.turn("Go.")
	if got := l.saw(1); !strings.Contains(got, "exit code 7") {
		t.Errorf("after the end: %q", got)
	}
	if got := l.read("/tmp/again"); got != "again\n" {
		t.Errorf("the new shell wrote %q", got)
	}
	l.close()
}

func TestASecondMessageFindsTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{}`, agent.Setup{}, chattest.Script(
		typing("mkdir -p /tmp/here; cd /tmp/here; X=kept\n", 2), complete, complete, typing("echo $X > out\n", 2), complete, complete))
	l.turn("First.")
	if y := l.turn("Second."); y.End != agent.Done {
		t.Errorf("got %+v", y)
	}
	if got := l.read("/tmp/here/out"); got != "kept\n" {
		t.Errorf("got %q; want what the first turn left", got)
	}
	if got := l.saw(3); !strings.Contains(got, "The user says:\n\nSecond.") {
		t.Errorf("the second prompt is %q", got)
	}
	l.close()
}

func TestATooLongConversationIsHandedOver(t *testing.T) {
	t.Parallel()
	long := false
	l := newFixture(t, `{}`, agent.Setup{}, func(q chattest.Question) chattest.Answer {
		switch {
		case strings.Contains(q.Last, "plain text: tell in detail"):
			return chattest.Answer{Text: "THE SUMMARY"}
		case strings.Contains(q.Last, "at least five questions"):
			return chattest.Answer{Text: "THE QUESTIONS"}
		case strings.Contains(q.Last, "has these questions"):
			return chattest.Answer{Text: "THE ANSWERS"}
		case strings.Contains(q.Last, "THE ANSWERS"), strings.Contains(q.Last, "say again"):
			return chattest.Answer{Text: complete}
		case q.Turns >= 3:
			long = true
			return chattest.Answer{Status: http.StatusBadRequest, Body: `{"error": {"message": "maximum context length is 8 tokens"}}`}
		}
		return chattest.Answer{Text: typing("echo "+fmt.Sprint(q.Turns)+"\n", 0.1)}
	})
	if y := l.turn("THE TASK"); y.End != agent.Done || !long {
		t.Errorf("got %+v", y)
	}
	var hand string
	for _, q := range l.model.Questions() {
		if strings.Contains(q.Last, "THE ANSWERS") {
			hand = string(q.Body)
			break
		}
	}
	for _, want := range []string{"THE TASK", "THE SUMMARY", "THE QUESTIONS", "THE ANSWERS"} {
		if !strings.Contains(hand, want) {
			t.Errorf("after the hand-over the model does not know %q: %s", want, hand)
		}
	}
	var refs []trajectory.SubagentRef
	for _, s := range l.steps {
		if s.Source == trajectory.System {
			refs = s.Observation.Results[0].Subagents
		}
	}
	if len(refs) != 3 || refs[0].TrajectoryPath != "agent/trajectory.summarization-1-summary.json" || len(l.artifacts) != 4 {
		t.Errorf("refs %+v, artifacts %v", refs, l.artifacts)
	}
	l.close()
}

func TestWithoutRoomForASummaryItBeginsAnew(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{}`, agent.Setup{}, func(q chattest.Question) chattest.Answer {
		if q.Turns == 0 && strings.Contains(q.Last, "introduce") || q.Turns >= 2 || strings.Contains(q.Last, "plain text") || strings.Contains(q.Last, "few sentences") {
			return chattest.Answer{Status: http.StatusBadRequest, Body: `{"error": {"message": "prompt is too long"}}`}
		}
		if q.Number > 5 {
			return chattest.Answer{Text: complete}
		}
		return chattest.Answer{Text: typing("", 0)}
	})
	if y := l.turn("Go."); y.End != agent.Done {
		t.Errorf("got %+v", y)
	}
	found := false
	for _, s := range l.steps {
		found = found || s.Source == trajectory.System && s.Message.Text == "The conversation was begun anew."
	}
	if !found {
		t.Error("no step says that the conversation was begun anew")
	}
	l.close()
}

func TestATurnThatIsCutOffEndsSoon(t *testing.T) {
	t.Parallel()
	l := newFixture(t, `{}`, agent.Setup{}, chattest.Script(typing("sleep 100\n", 60)))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	begun := time.Now()
	_, err := l.worker.Turn(ctx, agent.Message{Turn: 1, Text: "Go."}, loop.NewRecorder(l.record, "m", 0))
	if took := time.Since(begun); err == nil || took > 45*time.Second { // the promise: the 60 s of the keys are not waited for
		t.Errorf("got %v after %v", err, took)
	}
	l.close()
}

func TestConfigurationsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"max_turns": -1}`: "max_turns", `{"max_tokens": -1}`: "max_tokens", `{"temperature": 3}`: "temperature",
	} {
		var c Config
		ps := config.Validate(json.RawMessage(raw), &c)
		if len(ps) != 1 || !strings.Contains(ps[0].String(), want) {
			t.Errorf("%s: got %v; want one problem with %s", raw, ps, want)
		}
	}
	var c Config
	if ps := config.Validate(json.RawMessage(`{}`), &c); len(ps) > 0 {
		t.Errorf("the defaults are refused: %v", ps)
	}
}
