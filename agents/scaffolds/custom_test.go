package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// declared is a CLI as an experiment declares it.
const declared = `{
  "command": ["{bundle}/bin/x", "--model", "{model}", "--effort", "{effort}"], "continue": ["x", "--resume", "{session}"], "reasoning_effort": "high",
  "dialects": ["openai-chat"], "env": {"URL": "{url}/v1", "KEY": "{token}"}, "format": "jsonl",
  "file": {"x.json": {"text": "{\"home\": \"{home}\"}"}},
  "event": [
    {"kind": "session", "when": {"type": "init"}, "text": "sid"},
    {"kind": "think", "when": {"type": "assistant"}, "each": "message.content", "where": {"type": "thinking"}, "text": "thinking"},
    {"kind": "say", "when": {"type": "assistant"}, "each": "message.content", "where": {"type": "text"}, "text": "text"},
    {"kind": "call", "when": {"type": "assistant"}, "each": "message.content", "where": {"type": "tool"}, "call": "id", "name": "name", "arguments": "input"},
    {"kind": "result", "when": {"type": "user", "message.content.0.tool": "*"}, "each": "message.content", "call": "tool", "text": "out", "failed": "bad"},
    {"kind": "usage", "when": {"type": "assistant"}, "input": ["usage.in", "usage.cached"], "cached": ["usage.cached"], "output": ["usage.out"]},
    {"kind": "done", "when": {"type": "result", "ok": "true"}, "text": "text"},
    {"kind": "failed", "when": {"type": "result", "ok": "false"}, "text": "why"}
  ]}`

func declare(t *testing.T, raw string) *Custom {
	t.Helper()
	var c Custom
	if ps := config.Validate(json.RawMessage(raw), &c); len(ps) > 0 {
		t.Fatal(config.Problems(ps))
	}
	return &c
}

const printed = `{"type":"init","sid":"s-1"}
a line for people
{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"I look."},{"type":"tool","id":"c1","name":"sh","input":{"cmd":"ls"}}]},"usage":{"in":7,"cached":3,"out":2}}
{"type":"user","message":{"content":[{"tool":"c1","out":"a\nb","bad":true}]}}
{"type":"something new"}
{"type":"assistant","message":{"content":[{"type":"text","text":"Done."}]},"usage":{"in":9,"cached":1,"out":1}}
`

func TestADeclaredCLIIsRead(t *testing.T) {
	t.Parallel()
	s := declare(t, declared).scaffold()
	r := &record{}
	y, err := cli.Read(s, strings.NewReader(printed+`{"type":"result","ok":true,"text":"All done."}`), cli.Exit{}, r)
	if err != nil || y.End != agent.Done || y.Message != "All done." || *y.Claim.Input != 20 || *y.Claim.Cached != 4 || *y.Claim.Output != 3 {
		t.Errorf("%+v, %v", y, err)
	}
	valid(t, r.steps)
	if len(r.steps) != 2 || r.steps[0].ReasoningContent != "hm" || r.steps[0].Message.Text != "I look." || string(r.steps[0].ToolCalls[0].Arguments) != `{"cmd":"ls"}` ||
		r.steps[0].Observation.Results[0].Content.Text != "a\nb" || string(r.steps[0].Observation.Results[0].Extra) == "" || r.steps[1].Message.Text != "Done." {
		t.Errorf("steps %+v", r.steps)
	}
	for _, tt := range []struct {
		last string
		code int
		want agent.End
	}{
		{``, 0, agent.Crashed}, {`{"type":"result","ok":true}`, 3, agent.Crashed}, {`{"type":"result","ok":false,"why":"I cannot"}`, 0, agent.Crashed},
	} {
		if y, err := cli.Read(s, strings.NewReader(printed+tt.last), cli.Exit{Result: sandbox.Result{ExitCode: tt.code}}, &record{}); err != nil || y.End != tt.want {
			t.Errorf("%q, %d: %+v, %v", tt.last, tt.code, y, err)
		}
	}
	if _, err := cli.Read(s, strings.NewReader(`{"type":"result","ok":false,"why":"status 503: overloaded"}`), cli.Exit{}, &record{}); !errors.Is(err, agent.ErrModel) {
		t.Errorf("a model that is down: %v", err)
	}
}

func TestADeclaredCLIIsStarted(t *testing.T) {
	t.Parallel()
	c := declare(t, declared)
	s := c.scaffold()
	for turn, want := range [][]string{nil, {cli.Bundle + "/bin/x", "--model", "m", "--effort", "high"}, {"x", "--resume", "s-1"}} {
		if turn == 0 {
			continue
		}
		settings := c.Settings
		r := &cli.Run{Settings: &settings, Message: "do {token}", Turn: turn, URL: "http://h"}
		r.Model.Name, r.Model.Token = "m", "tok"
		if turn > 1 {
			r.Session = "s-1"
		}
		start, err := s.Start(r)
		if err != nil || !reflect.DeepEqual(start.Argv, want) || start.Env["URL"] != "http://h/v1" || start.Env["KEY"] != "tok" || start.Stdin != "do {token}" {
			t.Errorf("turn %d: %+v, %v", turn, start, err)
		}
		if len(start.Files) != 1 || start.Files[0].Data != `{"home": "`+cli.Home+`"}` {
			t.Errorf("files %+v", start.Files)
		}
	}
}

func TestACLIThatPrintsAText(t *testing.T) {
	t.Parallel()
	r := &record{}
	y, err := cli.Read(declare(t, `{"command": ["x"]}`).scaffold(), strings.NewReader("one\ntwo\n"), cli.Exit{}, r)
	if err != nil || y.Message != "one\ntwo" || len(r.steps) != 1 || r.steps[0].Message.Text != y.Message {
		t.Errorf("%+v, %v, %+v", y, err, r.steps)
	}
	valid(t, r.steps)
}

func TestDeclarationsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"command": ["x"], "format": "jsonl"}`: "format", `{"command": ["x"], "bundle": "x"}`: "NAME@VERSION",
		`{"command": ["x"], "message": "argument"}`: "{message}", `{"command": ["x"], "dialects": ["smoke"]}`: "smoke", `{"command": ["x"], "version": "1"}`: "version",
	} {
		var c Custom
		if ps := config.Validate(json.RawMessage(raw), &c); len(ps) == 0 || !strings.Contains(config.Problems(ps).Error(), want) {
			t.Errorf("%s: %v; want %q", raw, ps, want)
		}
	}
	needs, err := cli.Of(func(c Custom) (cli.Scaffold, cli.Settings) { return c.scaffold(), c.Settings }).Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent})
	if err != nil || len(needs.Refusals) != 1 || !strings.Contains(needs.Refusals[0], "no command") {
		t.Errorf("without a command: %+v, %v", needs, err)
	}
	// A setting that its texts do not use is refused.
	s := declare(t, declared).scaffold()
	needs, err = cli.Of(func(Custom) (cli.Scaffold, cli.Settings) { return s, cli.Settings{ReasoningEffort: "low", MaxTurns: 3} }).Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent})
	if err != nil || len(needs.Refusals) != 1 || !strings.Contains(needs.Refusals[0], "max_turns") {
		t.Errorf("%+v, %v", needs, err)
	}
}

// A later message is given to continue: if that names a session, only once the
// session is known.
func TestADeclaredCLIIsContinued(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		continues, session string
		turn               int
		want               string
		keeps              bool
	}{
		{`["x", "--continue"]`, "", 1, "x", true},
		{`["x", "--continue"]`, "", 2, "x --continue", true},
		{`["x", "--resume", "{session}"]`, "", 2, "x", true},
		{`["x", "--resume", "{session}"]`, "s", 2, "x --resume s", true},
		{`null`, "s", 2, "x", false},
	} {
		c := declare(t, `{"command": ["x"], "continue": `+tt.continues+`}`)
		start, err := c.start(&cli.Run{Settings: &cli.Settings{}, Turn: tt.turn, Session: tt.session})
		if got := strings.Join(start.Argv, " "); err != nil || got != tt.want {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
		needs, err := cli.New(c.scaffold()).Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent})
		if err != nil || needs.KeepsSession != tt.keeps {
			t.Errorf("%+v: needs %+v, %v", tt, needs, err)
		}
	}
}

// A conversation to continue from has what every provider accepts, whatever is
// in the trajectory.
func TestAPriorConversation(t *testing.T) {
	t.Parallel()
	text := func(s string) *trajectory.Content { c := trajectory.Text(s); return &c }
	ms := priorOf(&trajectory.Trajectory{Steps: []trajectory.Step{
		{Source: trajectory.System, Message: trajectory.Text("left out")},
		{Source: trajectory.User, Message: trajectory.Content{Parts: []trajectory.Part{{Type: trajectory.PartText, Text: "look"}, {Type: trajectory.PartImage}}}},
		{
			Source: trajectory.Model, ToolCalls: []trajectory.ToolCall{{ID: "a", Name: "my tool/" + strings.Repeat("x", 100)}, {ID: "b"}},
			Observation: &trajectory.Observation{Results: []trajectory.Result{{SourceCallID: "a", Content: text("out")}, {Content: text("of no call")}}},
		},
		{Source: trajectory.Model, ToolCalls: []trajectory.ToolCall{{ID: "a", Name: "t", Arguments: json.RawMessage(`{"k":1}`)}}},
		{Source: trajectory.Model},
	}})
	var got []string
	for _, m := range ms {
		line := fmt.Sprintf("%v %q", m.user, m.text)
		for _, c := range m.calls {
			line += fmt.Sprintf(" %s %s %s=%s", c.id, c.name, c.arguments, c.result)
		}
		got = append(got, line)
	}
	want := []string{
		`true "look\n[image left out]"`,
		`false "" prior_1 my_tool_` + strings.Repeat("x", 56) + ` {}=out prior_2 tool {}=[no result is recorded]`,
		`true "of no call"`,
		`false "" prior_3 t {"k":1}=[no result is recorded]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
