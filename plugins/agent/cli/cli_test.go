package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

type recorded struct {
	steps []trajectory.Step
	files []string
}

func (r *recorded) Step(s trajectory.Step) error { r.steps = append(r.steps, s); return nil }
func (r *recorded) Log(string) error             { return nil }
func (r *recorded) Artifact(p string) error      { r.files = append(r.files, p); return nil }

// box is a sandbox whose CLI is a function.
type box struct {
	sandbox.Shell // the rest is not used

	files map[string]string
	run   func(c sandbox.Command) sandbox.Result
	look  string
	ran   []sandbox.Command
	err   error // of each run
}

func (b *box) Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	if strings.HasSuffix(c.Argv[0], "sh") {
		_, err := io.WriteString(c.Stdout, b.look)
		return sandbox.Result{}, err
	}
	b.ran = append(b.ran, c)
	r := b.run(c)
	if b.err != nil {
		return r, b.err
	}
	return r, context.Cause(ctx)
}

func (b *box) Upload(_ context.Context, dir string, tar io.Reader, _ sandbox.UploadOptions) error {
	raw, err := io.ReadAll(tar)
	b.files[dir] = string(raw)
	return err
}

// echo reads lines such as "say hello", "call c1 name", "result c1 text".
type echo struct {
	book *Transcript
	said string
}

func (e *echo) Line(line []byte) {
	verb, rest, _ := strings.Cut(string(line), " ")
	a, b, _ := strings.Cut(rest, " ")
	switch verb {
	case "say":
		e.book.Next()
		e.said = rest
		e.book.Say("", rest)
	case "call":
		e.book.Call("", a, b, json.RawMessage(`{"x":1}`))
	case "result":
		e.book.Result(a, b, false)
	case "session":
		e.book.Session = rest
	case "sub":
		e.book.In(a).Say("1", b)
	}
}

func (e *echo) End(x Exit) (agent.Yield, error) {
	if x.ExitCode != 0 {
		return x.Crashed(""), nil
	}
	return agent.Yield{End: agent.Done, Message: e.said}, nil
}

func scaffold() Scaffold {
	return Scaffold{
		Name: "thing", Recipe: bundle.Recipe{Version: "1", Links: map[string]string{"bash": "x"}}, Dialects: []model.Dialect{model.DialectOpenAIChat}, Knobs: []Knob{Effort},
		Start: func(r *Run) (Start, error) {
			return Start{Argv: []string{"/cli", r.Session, r.Shell}, Env: map[string]string{"A": "ours"}, Files: []File{{Path: "a/b", Data: "d"}}, Stdin: r.Message}, nil
		},
		Events: func(b *Transcript) Events { return &echo{book: b} },
	}
}

func open(t *testing.T, b *box, setup agent.Setup) *session {
	t.Helper()
	b.files = map[string]string{}
	setup.Scratch = t.TempDir()
	s := &session{scaffold: scaffold(), setup: setup, model: model.Endpoint{Name: "m", Inside: "http://h/"}, shell: b, close: func() error { return nil }}
	s.settings.Env, s.settings.Args = map[string]string{"A": "theirs"}, []string{"--more"}
	s.book = newTranscript("m", "", setup.Scratch)
	return s
}

func TestATurnIsACommandAndItsLinesAreSteps(t *testing.T) {
	t.Parallel()
	b := &box{look: "tmp\ndirect corp.example\nbash /usr/bin/bash\n", run: func(c sandbox.Command) sandbox.Result {
		in, _ := io.ReadAll(c.Stdin)
		_, _ = io.WriteString(c.Stdout, "session s-7\nsay got "+string(in)+"\ncall c1 sh\nsub c1 inner\nresult c1 out\nsay bye")
		_, _ = io.WriteString(c.Stderr, "noise")
		return sandbox.Result{}
	}}
	s := open(t, b, agent.Setup{Workdir: "/w", User: "bob"})
	r := &recorded{}
	y, err := s.Turn(t.Context(), agent.Message{Text: "hello", Turn: 1}, r)
	if err != nil || y.End != agent.Done || y.Message != "bye" {
		t.Fatalf("%+v, %v", y, err)
	}
	const direct = "127.0.0.1,localhost,corp.example" // the model is never behind a proxy of the image
	c := b.ran[0]
	if strings.Join(c.Argv, " ") != "/cli  /usr/bin/bash --more" || strings.Join(c.Env, " ") != "A=theirs HOME="+Home+" NO_PROXY="+direct+" no_proxy="+direct || c.Dir != "/w" || c.User != "bob" {
		t.Errorf("command %+v", c)
	}
	if !strings.Contains(b.files["/var/lib"], "berth-agent/a/b") {
		t.Errorf("files %q", b.files)
	}
	if len(r.steps) != 2 || r.steps[0].Message.Text != "got hello" || r.steps[0].Observation.Results[0].Content.Text != "out" || len(r.steps[0].Observation.Results[0].Subagents) != 1 {
		t.Errorf("steps %+v", r.steps)
	}
	if sub, missing := os.ReadFile(filepath.Join(s.setup.Scratch, "subagents", "c1.json")); missing != nil || !strings.Contains(string(sub), "inner") {
		t.Errorf("sub-agent: %s, %v", sub, missing)
	}
	if _, err = s.Turn(t.Context(), agent.Message{Text: "again", Turn: 2}, r); err != nil || b.ran[1].Argv[1] != "s-7" {
		t.Errorf("the second turn: %+v, %v", b.ran[1].Argv, err)
	}
	if text, err := os.ReadFile(filepath.Join(s.setup.Scratch, "turn-2.stderr.txt")); err != nil || string(text) != "noise" {
		t.Errorf("what it printed: %q, %v", text, err)
	}
}

func TestAMessageIsNoCommand(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"/help": "Message:\n/help", " \n/help me": "Message:\n \n/help me", "see /etc": "see /etc", "": "", "-/x": "-/x",
	} {
		if got := plain(message); got != want {
			t.Errorf("%q becomes %q, want %q", message, got, want)
		}
	}
}

func TestTheLimitOfStepsEndsATurn(t *testing.T) {
	t.Parallel()
	b := &box{run: func(c sandbox.Command) sandbox.Result {
		_, _ = io.WriteString(c.Stdout, strings.Repeat("say more\n", 9))
		return sandbox.Result{ExitCode: -1}
	}}
	y, err := open(t, b, agent.Setup{Limits: agent.Limits{MaxSteps: 3}}).Turn(t.Context(), agent.Message{Turn: 1}, &recorded{})
	if err != nil || y.End != agent.MaxSteps {
		t.Errorf("%+v, %v", y, err)
	}
}

// Of a CLI that is killed at its deadline, Close records what had begun.
func TestAKilledCLILeavesWhatHadBegun(t *testing.T) {
	t.Parallel()
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	b := &box{run: func(c sandbox.Command) sandbox.Result {
		_, _ = io.WriteString(c.Stdout, "say I wait\ncall c1 sleep\n")
		cancel(over)
		return sandbox.Result{}
	}}
	s := open(t, b, agent.Setup{})
	r := &recorded{}
	if _, err := s.Turn(ctx, agent.Message{Turn: 1}, r); !errors.Is(err, over) {
		t.Errorf("got %v; want the cause", err)
	}
	if err := s.Close(t.Context(), "", r); err != nil || len(r.steps) != 1 || len(r.steps[0].ToolCalls) != 1 {
		t.Errorf("%v: %+v", err, r.steps)
	}
}

// deaf is a recorder whose call has been cancelled.
type deaf struct{ recorded }

func (*deaf) Step(trajectory.Step) error { return context.Canceled }

// A CLI whose access is cut before its turn is cancelled, as at a deadline, says
// what it said last, and Close records all that the turn no longer could.
func TestACLIThatIsCutOffLosesNothing(t *testing.T) {
	t.Parallel()
	b := &box{err: sandbox.ErrRevoked, run: func(c sandbox.Command) sandbox.Result {
		_, _ = io.WriteString(c.Stdout, "say one\ncall c1 sh\nresult c1 out\nsay two\ncall c2 sleep\n")
		return sandbox.Result{}
	}}
	s := open(t, b, agent.Setup{})
	y, err := s.Turn(t.Context(), agent.Message{Turn: 1}, &deaf{})
	if err != nil || y.End != agent.Crashed || !strings.Contains(y.Reason, "last words: two") {
		t.Errorf("%+v, %v", y, err)
	}
	r := &recorded{}
	if err := s.Close(t.Context(), "", r); err != nil || len(r.steps) != 2 || r.steps[0].Message.Text != "one" || len(r.steps[1].ToolCalls) != 1 {
		t.Errorf("%v: %+v", err, r.steps)
	}
}

// A CLI that was cut off before it named its session, or before its model said
// anything, hears its task again with the next message: some store a session only
// with the first reply. Any other one continues.
func TestAMessageAfterACut(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"", "session s-0\n", "session s-1\nsay hm\n"} {
		var heard []string
		b := &box{run: func(c sandbox.Command) sandbox.Result {
			in, _ := io.ReadAll(c.Stdin)
			heard = append(heard, c.Argv[1]+":"+string(in))
			out := first
			if len(heard) > 1 {
				out = "session s-1\nsay hm\n"
			}
			_, _ = io.WriteString(c.Stdout, out)
			return sandbox.Result{}
		}}
		s := open(t, b, agent.Setup{})
		b.err = sandbox.ErrRevoked
		if y, err := s.Turn(t.Context(), agent.Message{Text: "the task", Turn: 1}, &recorded{}); err != nil || y.End != agent.Crashed {
			t.Fatalf("%+v, %v", y, err)
		}
		b.err = nil
		for i, text := range []string{"go on", "and on"} {
			if y, err := s.Turn(t.Context(), agent.Message{Text: text, Turn: i + 2}, &recorded{}); err != nil || y.End != agent.Done {
				t.Errorf("%+v, %v", y, err)
			}
		}
		want := []string{":the task", ":the task\n\ngo on", "s-1:and on"}
		if strings.Contains(first, "say") {
			want = []string{":the task", "s-1:go on", "s-1:and on"}
		}
		if !slices.Equal(heard, want) {
			t.Errorf("it heard %q; want %q", heard, want)
		}
	}
}

func TestLinesOfAnyLength(t *testing.T) {
	t.Parallel()
	var got []string
	l := &lines{each: func(b []byte) { got = append(got, string(b[:min(len(b), 5)])) }}
	for _, piece := range []string{"{a", "b}\n\n", strings.Repeat("x", maxLine), "y\nlast", "!"} {
		if n, err := l.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	l.end()
	if strings.Join(got, "|") != "{ab}|last!" || !strings.Contains(string(l.tail), "last!") {
		t.Errorf("got %q, tail %q", got, l.tail)
	}
}

func TestSettingsWithoutAKnobAreRefused(t *testing.T) {
	t.Parallel()
	a := New(scaffold())
	needs, err := a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleUser, Config: json.RawMessage(`{"max_turns": 3, "reasoning_effort": "high", "version": "no-such", "skill": {"tables": {"text": "x"}}}`)})
	all := strings.Join(needs.Refusals, "\n")
	for _, want := range []string{"max_turns: remove it, or bound it with max_steps", "simulated user", "berth agent bundle thing@no-such"} {
		if err != nil || !strings.Contains(all, want) {
			t.Errorf("%v, %q; want %q", err, all, want)
		}
	}
	if strings.Contains(all, "reasoning_effort") || strings.Contains(all, "skill") {
		t.Errorf("a knob that is there was refused, or a skill, which needs none: %s", all)
	}
	choosy := scaffold()
	choosy.Efforts = []string{"low", "most"}
	for effort, want := range map[string]string{"high": `does not know the reasoning_effort "high"`, "most": ""} {
		needs, err = New(choosy).Check(t.Context(), agent.CheckRequest{Config: json.RawMessage(`{"reasoning_effort": "` + effort + `"}`)})
		if all := strings.Join(needs.Refusals, "\n"); err != nil || strings.Contains(all, "reasoning_effort") != (want != "") || !strings.Contains(all, want) {
			t.Errorf("%s: %v, %q; want %q", effort, err, all, want)
		}
	}
	choosy.NoArgs = true
	needs, err = New(choosy).Check(t.Context(), agent.CheckRequest{Config: json.RawMessage(`{"args": ["--more"]}`)})
	if all := strings.Join(needs.Refusals, "\n"); err != nil || !strings.Contains(all, "remove args") {
		t.Errorf("arguments for a driver: %v, %q", err, all)
	}
	for raw, want := range map[string]string{
		`{"max_turns": -1}`: "negative", `{"mcp": {"a": {}}}`: "either", `{"skill": {"../a": {"text": "x"}}}`: "leads out", `{"skil": {}}`: "skil",
	} {
		var s Settings
		if ps := config.Validate(json.RawMessage(raw), &s); len(ps) == 0 || !strings.Contains(config.Problems(ps).Error(), want) {
			t.Errorf("%s: %v; want %q", raw, ps, want)
		}
	}
}

func TestArgumentsBecomeObjects(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, ``: `{}`, `null`: `{}`, `"{\"a\":1}"`: `{"a":1}`, `"text"`: `{"input":"text"}`, `[1]`: `{"input":"[1]"}`, `{bad`: `{"input":"{bad"}`,
	} {
		if got := string(object(json.RawMessage(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// A message in very many pieces, or with very many calls, takes time by its
// length, and is cut.
func TestAMessageInManyPieces(t *testing.T) {
	t.Parallel()
	r := &recorded{}
	b := newTranscript("m", "", "")
	b.rec = r
	b.Say("1", "begin")
	for range 200_000 { // some 2 MB: joined anew each time, they would be 40 GB
		b.Say("1", "something \xff")
		b.Think("1", "deep")
	}
	if w := b.words(); !strings.HasPrefix(w, "begin\n") || len(w) > maxText+200 || !strings.Contains(w, "bytes in the middle") {
		t.Errorf("%d bytes, from %.20q", len(w), w)
	}
	for i := range 2*maxCalls + 1 {
		b.Call("1", strconv.Itoa(i), "t", nil)
	}
	b.end()
	if len(r.steps) != 3 || r.steps[0].Message.Text != b.said || len(r.steps[0].ToolCalls) != maxCalls || len(r.steps[2].ToolCalls) != 1 || len(r.steps[0].ReasoningContent) > maxText+200 {
		t.Errorf("%d steps", len(r.steps))
	}
}
