package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// record keeps what is recorded.
type record struct {
	steps []trajectory.Step
	logs  []string
}

func (r *record) Step(s trajectory.Step) error { r.steps = append(r.steps, s); return nil }
func (r *record) Log(line string) error        { r.logs = append(r.logs, line); return nil }
func (r *record) Artifact(string) error        { return nil }

// named is the declaration of a name.
func named(t testing.TB, name string) cli.Scaffold {
	t.Helper()
	for _, s := range scaffolds() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scaffold %q", name)
	return cli.Scaffold{}
}

// valid fails unless steps make a valid trajectory.
func valid(t testing.TB, steps []trajectory.Step) {
	t.Helper()
	if len(steps) == 0 {
		return
	}
	tr, odd, err := trajectory.New(trajectory.Agent{Name: "a", Version: "1"}, "s", steps)
	if err != nil {
		t.Fatal(err)
	}
	if len(odd) > 0 {
		t.Errorf("steps had to be mended: %v", odd)
	}
	if _, err = trajectory.Encode(tr); err != nil {
		t.Error(err)
	}
}

// exits are how the CLIs ended when their output was recorded
// (internal/e2e/scaffolds -record).
var exits = map[string]sandbox.Result{"crash": {ExitCode: -1, Signal: syscall.SIGKILL}, "deadline": {ExitCode: -1, Signal: syscall.SIGKILL}}

func TestRecordedOutputsAreRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		name, what, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".jsonl"), ".")
		t.Run(name+"/"+what, func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := &record{}
			x := cli.Exit{Result: exits[what]}
			if (what == "down" || what == "bad") && name != "pi" {
				x.ExitCode = 1
			}
			y, err := cli.Read(named(t, name), bytes.NewReader(b), x, r)
			valid(t, r.steps)
			judge(t, what, y, err, r)
			if end := (map[string]agent.End{"codex": agent.Done, "gemini-cli": agent.Done, "qwen-code": agent.Crashed})[name]; what == "refuse" && y.End != cmp.Or(end, agent.Refused) {
				t.Errorf("the end after a refusal is %s (%s), which is not what docs/scaffolds.md says", y.End, y.Reason)
			}
		})
	}
}

func judge(t *testing.T, what string, y agent.Yield, err error, r *record) {
	t.Helper()
	want := map[string]agent.End{"solve": agent.Done, "nobody": agent.Done, "crash": agent.Crashed, "deadline": agent.Crashed, "bad": agent.Crashed}[what]
	switch {
	case what == "down":
		if !errors.Is(err, agent.ErrModel) || !strings.Contains(err.Error(), "scripted trouble") {
			t.Errorf("got %+v, %v; want that the model is down", y, err)
		}
		return
	case what == "refuse": // what a CLI makes of it differs, and the caller knows it
		if !slices.ContainsFunc(r.steps, func(s trajectory.Step) bool { return s.Source == trajectory.Model }) {
			t.Errorf("the refusal is not a step: %+v", r.steps)
		}
	case err != nil || y.End != want:
		t.Errorf("got %+v, %v; want %s", y, err, want)
	}
	if what != "solve" {
		return
	}
	if len(r.steps) != 2 || len(r.steps[0].ToolCalls) != 1 || r.steps[0].Message.Text != "I write it." || r.steps[1].Message.Text != "finished solve" {
		t.Fatalf("steps %+v", r.steps)
	}
	if o := r.steps[0].Observation; o == nil || o.Results[0].SourceCallID != r.steps[0].ToolCalls[0].ID || !strings.Contains(o.Results[0].Content.Text, "MARK-solve") {
		t.Errorf("observation %+v", o)
	}
	_, name, _ := strings.Cut(t.Name(), "/")
	name, _, _ = strings.Cut(name, "/")
	// Those that say why the model stopped. A supervisor judges by it whether the
	// agent had finished.
	if stop := (map[string]string{"pi": "stop", "openclaw": "stop", "opencode": "stop", "claude-code": "end_turn"})[name]; stop != "" && !strings.Contains(string(r.steps[1].Extra), `"stop_reason":"`+stop+`"`) {
		t.Errorf("the last step has %s, not why the model stopped", r.steps[1].Extra)
	}
	if y.Claim == nil || *y.Claim.Input != 200 || *y.Claim.Output != 20 || *y.Claim.Cached != 120 {
		t.Errorf("claim %+v", y.Claim)
	}
}

// Sub-agents are kept apart: their steps are not those of the agent.
func TestSubagentsAreKeptApart(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"type":"system","subtype":"init","session_id":"s"}`,
		`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Task","input":{"prompt":"look"}}]}}`,
		`{"type":"user","parent_tool_use_id":"t1","message":{"content":[{"type":"text","text":"look"}]}}`,
		`{"type":"assistant","parent_tool_use_id":"t1","message":{"id":"m2","content":[{"type":"tool_use","id":"t2","name":"Bash","input":{"command":"ls"}}]}}`,
		`{"type":"user","parent_tool_use_id":"t1","message":{"content":[{"type":"tool_result","tool_use_id":"t2","content":"a b"}]}}`,
		`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"found a"}]}]}}`,
		`{"type":"assistant","message":{"id":"m3","content":[{"type":"text","text":"a"}]}}`,
		`{"type":"result","subtype":"success","result":"a","modelUsage":{"x":{"inputTokens":1,"outputTokens":2}}}`,
	}
	r := &record{}
	y, err := cli.Read(named(t, "claude-code"), strings.NewReader(strings.Join(lines, "\n")), cli.Exit{}, r)
	if err != nil || y.End != agent.Done || len(r.steps) != 2 || r.steps[0].ToolCalls[0].Name != "Task" || r.steps[1].Message.Text != "a" {
		t.Errorf("%+v, %v: %+v", y, err, r.steps)
	}
	valid(t, r.steps)
}

// read reads what a CLI printed, and keeps the files of its sub-agents in dir.
func read(t *testing.T, scaffold string, lines ...string) *record {
	t.Helper()
	r := &record{}
	if _, err := cli.Read(named(t, scaffold), strings.NewReader(strings.Join(lines, "\n")), cli.Exit{}, r); err != nil {
		t.Fatal(err)
	}
	valid(t, r.steps)
	return r
}

// has fails unless a step has metrics with these tokens.
func has(t *testing.T, s trajectory.Step, input, output int64) {
	t.Helper()
	if m := s.Metrics; m == nil || m.PromptTokens == nil || *m.PromptTokens != input || m.CompletionTokens == nil || *m.CompletionTokens != output {
		t.Errorf("metrics of %q are %+v, want %d and %d", s.Message.Text, m, input, output)
	}
}

// One reply of OpenCode with two calls is one step with its usage, although each
// call is reported with its result.
func TestAReplyWithTwoCallsIsOneStep(t *testing.T) {
	t.Parallel()
	call := func(id string) string {
		return `{"type":"tool_use","sessionID":"s","part":{"tool":"bash","callID":"` + id + `","state":{"status":"completed","input":{"command":"ls"},"output":"a"}}}`
	}
	r := read(
		t, "opencode", `{"type":"step_start","sessionID":"s"}`, `{"type":"text","part":{"text":"I look."}}`, call("c1"), call("c2"),
		`{"type":"step_finish","part":{"reason":"tool-calls","tokens":{"input":40,"output":10,"cache":{"read":60}}}}`,
		`{"type":"step_start","sessionID":"s"}`, `{"type":"text","part":{"text":"done"}}`,
		`{"type":"step_finish","part":{"reason":"stop","tokens":{"input":50,"output":11}}}`,
	)
	if len(r.steps) != 2 || len(r.steps[0].ToolCalls) != 2 || len(r.steps[0].Observation.Results) != 2 {
		t.Fatalf("steps %+v", r.steps)
	}
	has(t, r.steps[0], 100, 10)
	has(t, r.steps[1], 50, 11)
}

// A refusal is a step, although Codex prints nothing of it but its usage.
func TestARefusalIsAStep(t *testing.T) {
	t.Parallel()
	done := `{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":60,"output_tokens":10}}`
	r := read(t, "codex", `{"type":"thread.started","thread_id":"t"}`, `{"type":"turn.started"}`, done)
	if len(r.steps) != 1 || r.steps[0].Source != trajectory.Model {
		t.Fatalf("steps %+v", r.steps)
	}
	has(t, r.steps[0], 100, 10)
	command := `{"type":"item.completed","item":{"id":"i","type":"command_execution","command":"ls","aggregated_output":"a","exit_code":0,"status":"completed"}}`
	if r = read(t, "codex", command, done); len(r.steps) != 2 || r.steps[1].Metrics != nil {
		t.Errorf("after a call: %+v", r.steps)
	}
	said := `{"type":"item.completed","item":{"id":"j","type":"agent_message","text":"done"}}`
	list := `{"type":"item.completed","item":{"id":"k","type":"todo_list","items":[]}}`
	if r = read(t, "codex", command, said, list, done); len(r.steps) == 0 || r.steps[len(r.steps)-1].Source == trajectory.Model && r.steps[len(r.steps)-1].Message.Text == "" {
		t.Errorf("after a list: %+v", r.steps)
	}
	if r = read(t, "codex", command, said, done); len(r.steps) != 2 || r.steps[1].Message.Text != "done" {
		t.Errorf("after a text: %+v", r.steps)
	}
}

// A reply without a call is a step, with what mini-SWE-agent answers to it.
func TestAReplyWithoutACallIsAStep(t *testing.T) {
	t.Parallel()
	r := read(
		t, "mini-swe-agent", `{"type": "session", "id": "conversation"}`,
		`{"type": "message", "text": "I think.", "thinking": "", "calls": [], "usage": {"input_tokens": 100, "cached_tokens": 0, "output_tokens": 10}}`,
		`{"type": "note", "text": "Tool call error"}`,
		`{"type": "message", "text": "", "thinking": "", "calls": [], "usage": {"input_tokens": 110, "cached_tokens": 0, "output_tokens": 11}}`,
		`{"type": "note", "text": "Tool call error"}`,
		`{"type": "end", "text": "", "reason": "RepeatedFormatError", "limit": false, "wrong": null, "refused": null}`,
	)
	if len(r.steps) != 4 || r.steps[0].Message.Text != "I think." || r.steps[1].Source != trajectory.User {
		t.Fatalf("steps %+v", r.steps)
	}
	has(t, r.steps[0], 100, 10)
	has(t, r.steps[2], 110, 11)
}

// One odd event never loses the rest.
func TestOddEventsLoseNothingElse(t *testing.T) {
	t.Parallel()
	odd := []string{
		`not JSON`, `{`, `{"type":`, `null`, `[]`, `{"type":"from a later version","message":{"id":7}}`, `{"type":"assistant","message":7}`,
		`{"type":"item.completed","item":"x"}`, `{"type":"message_end","message":{"role":"assistant","content":"text"}}`, "\x00\xff\xfe",
	}
	for _, s := range scaffolds() {
		b, err := os.ReadFile(filepath.Join("testdata", s.Name+".solve.jsonl"))
		if err != nil {
			continue // it prints no events
		}
		var mixed []string
		for line := range strings.Lines(string(b)) {
			mixed = append(mixed, strings.TrimSpace(line))
			mixed = append(mixed, odd[len(mixed)%len(odd)])
		}
		r := &record{}
		y, err := cli.Read(s, strings.NewReader(strings.Join(mixed, "\n")), cli.Exit{}, r)
		if err != nil || y.End != agent.Done || len(r.steps) < 2 {
			t.Errorf("%s: %+v, %v: %d steps", s.Name, y, err, len(r.steps))
		}
		valid(t, r.steps)
	}
}

func FuzzEvents(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 0)
		f.Add(b[:len(b)/2], 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, code int) {
		for _, s := range scaffolds() {
			r := &record{}
			y, err := cli.Read(s, bytes.NewReader(b), cli.Exit{Result: sandbox.Result{ExitCode: code}}, r)
			if err == nil && y.End == "" {
				t.Errorf("%s: no end", s.Name)
			}
			valid(t, r.steps)
		}
	})
}

// A declaration starts its CLI with all settings, and with what a second turn
// needs.
func TestDeclarationsAreWhole(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds() {
		r := &cli.Run{
			Settings: &cli.Settings{ReasoningEffort: "high", MaxTurns: 7, SystemPrompt: "be brief \"now\"", AllowedTools: []string{"a"}, DeniedTools: []string{"b"}},
			Message:  "-do it", Turn: 2, Session: "the-session", Workdir: "/w", URL: "http://127.0.0.1:1", Skills: []string{"/s/one"},
			Servers: []agent.Server{{Name: "m", Transport: "stdio", Command: "c", Args: []string{"d"}}, {Name: "h", Transport: "streamable-http", URL: "http://x"}},
		}
		r.Model.Token, r.Model.Dialect, r.Model.Name = "the-token", s.Dialects[0], "the-model"
		start, err := s.Start(r)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		raw, err := json.Marshal(start)
		if err != nil {
			t.Fatal(err)
		}
		all := string(raw)
		for _, want := range []string{"the-model", "the-token", "http://127.0.0.1:1", "-do it"} {
			if !strings.Contains(all, want) {
				t.Errorf("%s: nothing holds %q: %s", s.Name, want, all)
			}
		}
		for _, a := range start.Argv {
			if strings.Contains(a, "the-token") || a == "-do it" {
				t.Errorf("%s: argument %q: the token is not for argument lists, and a message is not an option", s.Name, a)
			}
		}
		for knob, want := range map[cli.Knob]string{cli.Effort: "high", cli.MaxTurns: "7", cli.SystemPrompt: "be brief", cli.Skills: "/s/one", cli.MCP: "http://x"} {
			has := strings.Contains(all, want)
			if takes := slices.Contains(s.Knobs, knob); takes && !has {
				t.Errorf("%s takes %s and does nothing with it: %s", s.Name, knob, all)
			}
		}
	}
}
