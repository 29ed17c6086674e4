package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

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

type record struct{ steps []trajectory.Step }

func (r *record) Step(s trajectory.Step) error {
	s.StepID = int64(len(r.steps) + 1)
	r.steps = append(r.steps, s)
	return nil
}
func (r *record) Log(string) error      { return nil }
func (r *record) Artifact(string) error { return nil }

func turn(t *testing.T, conf string, answer func(chattest.Question) chattest.Answer, prepare ...func(*sandbox.Client, *agent.Setup)) (agent.Yield, *record, *chattest.Server, *sandbox.Client) {
	t.Helper()
	box := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	server := chattest.Serve(t, model.DialectAnthropic, answer)
	s := &loop.Session[Config]{Setup: agent.Setup{Workdir: "/tmp"}, Shell: box}
	for _, p := range prepare {
		p(box, &s.Setup)
	}
	if ps := config.Validate(json.RawMessage(conf), &s.Config); len(ps) > 0 {
		t.Fatal(ps)
	}
	client, err := chat.Dial(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s.Model = client
	w, err := scaffold().New(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	r := &record{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	y, err := w.Turn(ctx, agent.Message{Turn: 1, Text: "Work."}, loop.NewRecorder(r, "m", 0))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(trajectory.Trajectory{Agent: trajectory.Agent{Name: "a", Version: "1"}, Steps: r.steps})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range trajectory.Validate(b) {
		t.Error(v)
	}
	return y, r, server, box
}

func bash(command string) string { return "I think.\n\n```bash\n" + command + "\n```\n" }

// The model is told of the skills of the task.
func TestSkillsStandInTheFirstMessage(t *testing.T) {
	t.Parallel()
	_, _, server, _ := turn(t, `{}`, chattest.Script(bash("echo "+done)), func(box *sandbox.Client, s *agent.Setup) {
		s.Skills = []string{"/tmp"}
		if err := box.WriteFile(t.Context(), "/tmp/SKILL.md", []byte("---\nname: plot\ndescription: Makes plots.\n---\nHow.\n"), sandbox.FileOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	first := server.Questions()[0].Last
	for _, want := range []string{"The task:\n\nWork.\n", "<name>plot</name>", "<location>/tmp/SKILL.md</location>"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in the first message:\n%s", want, first)
		}
	}
}

func TestCommandsRunEachInItsOwnShellUntilTheTaskIsComplete(t *testing.T) {
	t.Parallel()
	y, r, server, box := turn(t, `{}`, chattest.Script(bash("cd / && X=1; echo 42 > /tmp/a"), bash("pwd; echo \"<$X>\"; cat a; exit 3"), bash("echo "+done+"; echo all good")))
	if y.End != agent.Done || y.Message != "all good" || len(r.steps) != 3 {
		t.Errorf("got %+v after %d steps", y, len(r.steps))
	}
	if got := server.Questions()[2].Last; got != "Exit code: 3\nOutput:\n/tmp\n<>\n42\n" {
		t.Errorf("after the second command: %q", got)
	}
	if b, err := box.ReadFile(t.Context(), "/tmp/a", 10); err != nil || string(b) != "42\n" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if c := r.steps[0].ToolCalls; len(c) != 1 || c[0].Name != "bash" || r.steps[0].Observation.Results[0].SourceCallID != c[0].ID {
		t.Errorf("step %+v", r.steps[0])
	}
}

func TestLongOutputAndLongCommandsAreCut(t *testing.T) {
	t.Parallel()
	_, _, server, _ := turn(t, `{"command_timeout": "1s"}`, chattest.Script(bash("seq 50000"), bash("echo begun; sleep 100"), bash("echo "+done)))
	if got := server.Questions()[1].Last; len(got) > 10_300 || !strings.Contains(got, "\n1\n2\n") || !strings.HasSuffix(got, "\n50000\n") {
		t.Errorf("of 50000 lines: %d bytes: %q", len(got), got)
	}
	if got := server.Questions()[2].Last; !strings.Contains(got, "longer than 1s") || !strings.Contains(got, "begun") {
		t.Errorf("of a long command: %q", got)
	}
}

// The longest command that is taken can be run.
func TestAVeryLongCommandIsRun(t *testing.T) {
	t.Parallel()
	long := "echo " + strings.Repeat("x", maxCommand-len("echo  | wc -c\n")) + " | wc -c"
	y, _, server, _ := turn(t, `{}`, chattest.Script(bash(long), bash("echo "+done)))
	if got := server.Questions()[1].Last; y.End != agent.Done || !strings.Contains(got, "Exit code: 0") {
		t.Errorf("got %+v after %q", y, got)
	}
}

func TestAModelThatNeverFindsTheFormIsGivenUp(t *testing.T) {
	t.Parallel()
	y, r, server, _ := turn(t, `{}`, chattest.Script("I would run ls."))
	if y.End != agent.Crashed || len(r.steps) != maxBad || !strings.Contains(server.Questions()[1].Last, "no ```bash code block") {
		t.Errorf("got %+v after %d steps", y, len(r.steps))
	}
}

func TestWhatIsACommand(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"```bash\nls\n```":                 "ls",
		"a\n\n```sh\nls\npwd\n```\nb":      "ls\npwd",
		"```bash\ncat <<'E'\n`x`\nE\n```":  "cat <<'E'\n`x`\nE",
		"```bash\r\nls\r\n```\r\n":         "ls",
		"ls":                               "",
		"```python\nprint()\n```":          "",
		"```bash\n\n```":                   "",
		"```bash\na\n```\n```bash\nb\n```": "",
		"Text with ```bash in it.":         "",
		"```python\nprint()\n```\n\n```bash\npython x.py\n```": "python x.py",
	} {
		if got, err := parse(chat.Reply{Text: in}); got != want || (err != nil) != (want == "") {
			t.Errorf("parse(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for text, want := range map[string]string{"echo a\x00b": "zero byte", strings.Repeat("x", maxCommand+1): "in pieces"} {
		if _, err := parse(chat.Reply{Text: bash(text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a command that cannot be run: %v; want %q", err, want)
		}
	}
	if _, err := parse(chat.Reply{Text: "```bash\nls\n```", Stop: chat.Length}); err == nil {
		t.Error("a reply that was cut off was taken")
	}
}

func TestConfigurationsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"max_tokens": -1}`: "max_tokens", `{"command_timeout": "1ms"}`: "command_timeout",
	} {
		var c Config
		if ps := config.Validate(json.RawMessage(raw), &c); len(ps) != 1 || !strings.Contains(ps[0].String(), want) {
			t.Errorf("%s: got %v; want one problem with %s", raw, ps, want)
		}
	}
}
