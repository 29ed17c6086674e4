package acp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/acp"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

type record struct {
	steps []trajectory.Step
	logs  []string
}

func (r *record) Step(s trajectory.Step) error { r.steps = append(r.steps, s); return nil }
func (r *record) Log(line string) error        { r.logs = append(r.logs, line); return nil }
func (r *record) Artifact(string) error        { return nil }

// The agent's side of a start: answers to initialize and session/new.
const (
	started = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"http":true}},"authMethods":[{"id":"key"}],"agentInfo":{"name":"a","version":"2"}}}`
	opened  = `{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s1"}}`
)

// update is a session/update.
func update(kind, rest string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":%q,%s}}}`, kind, rest)
}

func says(text string) string {
	return update("agent_message_chunk", fmt.Sprintf(`"content":{"type":"text","text":%q}`, text))
}

// talk is what came of what an agent printed, and what it was sent.
type talk struct {
	yield agent.Yield
	err   error
	sent  []map[string]any
	record
}

func replay(t *testing.T, o acp.Options, r *cli.Run, lines ...string) talk {
	t.Helper()
	if r == nil {
		r = &cli.Run{Settings: &cli.Settings{}, Turn: 1, Workdir: "/w", Message: "do it"}
	}
	var k talk
	y, sent, err := cli.Replay(cli.Scaffold{Dialog: func(b *cli.Transcript) cli.Dialog { return acp.New(b, o) }}, r,
		strings.NewReader(strings.Join(lines, "\n")), cli.Exit{Result: sandbox.Result{ExitCode: 7}}, &k.record)
	k.yield, k.err = y, err
	for line := range strings.Lines(string(sent)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || m["jsonrpc"] != "2.0" {
			t.Fatalf("sent %q: %v", line, err)
		}
		k.sent = append(k.sent, m)
	}
	return k
}

// methods are the requests and notifications that were sent.
func (k *talk) methods() (all []string) {
	for _, m := range k.sent {
		if s, ok := m["method"].(string); ok {
			all = append(all, s)
		}
	}
	return all
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestATurnBecomesSteps(t *testing.T) {
	t.Parallel()
	k := replay(t, acp.Options{}, nil, started, opened,
		update("agent_thought_chunk", `"content":{"type":"text","text":"hm"}`), says("I "), says("look."),
		update("tool_call", `"toolCallId":"c1","title":"ls","kind":"execute","status":"pending","rawInput":{}`),
		update("tool_call_update", `"toolCallId":"c1","rawInput":{"command":"ls"},"status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"a"}}]`),
		update("tool_call", `"toolCallId":"c2","title":"Edit x","kind":"edit","status":"in_progress"`),
		update("tool_call_update", `"toolCallId":"c1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"a b"}}]`),
		update("tool_call_update", `"toolCallId":"c2","status":"failed","content":[{"type":"diff","path":"/x","oldText":null,"newText":"y"}]`),
		update("plan", `"entries":[{"content":"one","status":"completed"}]`), update("user_message_chunk", `"content":{"type":"text","text":"not ours"}`),
		says("Done."), `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":5,"outputTokens":2,"cachedReadTokens":3,"cachedWriteTokens":1}}}`)
	if k.err != nil || k.yield.End != agent.Done || k.yield.Message != "Done." || *k.yield.Claim.Input != 9 || *k.yield.Claim.Cached != 3 || *k.yield.Claim.Output != 2 {
		t.Errorf("%+v, %v", k.yield, k.err)
	}
	if got := strings.Join(k.methods(), " "); got != "initialize session/new session/prompt" {
		t.Errorf("sent %s", got)
	}
	if got := text(k.sent[2]["params"]); got != `{"prompt":[{"text":"do it","type":"text"}],"sessionId":"s1"}` {
		t.Errorf("prompt %s", got)
	}
	if len(k.steps) != 2 {
		t.Fatalf("steps %+v", k.steps)
	}
	one := k.steps[0]
	if one.ReasoningContent != "hm" || one.Message.Text != "I look." || len(one.ToolCalls) != 2 || string(one.ToolCalls[0].Arguments) != `{"command":"ls"}` || one.ToolCalls[0].Name != "execute" ||
		string(one.ToolCalls[1].Arguments) != `{"title":"Edit x"}` || one.Observation.Results[0].Content.Text != "a b" || !strings.Contains(one.Observation.Results[1].Content.Text, "wrote /x:\ny") {
		t.Errorf("step %+v, observation %+v", one, one.Observation)
	}
	if logs := strings.Join(k.logs, "\n"); !strings.Contains(logs, "plan: one (completed)") || !strings.Contains(logs, "agent a 2") {
		t.Errorf("logs %s", logs)
	}
}

// A message that comes while a call goes on is another step, and the result of
// that call is not lost.
func TestACallThatGoesOn(t *testing.T) {
	t.Parallel()
	k := replay(t, acp.Options{}, nil, started, opened, says("I start it."), update("tool_call", `"toolCallId":"c1","title":"serve","kind":"execute","rawInput":{"command":"serve"}`),
		says("It runs."), update("tool_call_update", `"toolCallId":"c1","status":"completed","rawOutput":{"stdout":"served"}`), `{"id":3,"result":{"stopReason":"end_turn"}}`)
	if len(k.steps) != 3 || k.steps[0].Message.Text != "I start it." || len(k.steps[0].ToolCalls) != 1 || k.steps[1].Message.Text != "It runs." || k.steps[2].Message.Text != "served" {
		t.Errorf("steps %+v", k.steps)
	}
}

func TestPermissionsAreAnsweredByPolicy(t *testing.T) {
	t.Parallel()
	ask := func(id int, kind, options string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c%d","title":"t","kind":%q},"options":[%s]}}`, id, id, kind, options)
	}
	const all = `{"optionId":"always","kind":"allow_always"},{"optionId":"once","kind":"allow_once"},{"optionId":"never","kind":"reject_always"},{"optionId":"no","kind":"reject_once"}`
	k := replay(t, acp.Options{Allow: func(kind string) bool { return kind != "fetch" }}, nil, started, opened,
		ask(10, "execute", all), ask(11, "fetch", all), ask(12, "edit", `{"optionId":"always","kind":"allow_always"}`), ask(13, "fetch", `{"optionId":"once","kind":"allow_once"}`),
		update("tool_call", `"toolCallId":"c14","title":"get","kind":"fetch"`), strings.Replace(ask(14, "x", all), `,"kind":"x"`, "", 1), `{"id":15,"method":"session/request_permission","params":7}`)
	want := map[string]string{"10": "once", "11": "no", "12": "always", "13": "", "14": "no", "15": ""}
	for _, m := range k.sent[3:] {
		id := text(m["id"])
		outcome := `{"outcome":{"outcome":"cancelled"}}`
		if want[id] != "" {
			outcome = fmt.Sprintf(`{"outcome":{"optionId":%q,"outcome":"selected"}}`, want[id])
		}
		if got := text(m["result"]); got != outcome {
			t.Errorf("request %s: %s, want %s", id, got, outcome)
		}
		delete(want, id)
	}
	if len(want) > 0 || !strings.Contains(strings.Join(k.logs, "\n"), `permission to fetch "t": not given`) {
		t.Errorf("not answered %v; logs %q", want, k.logs)
	}
	if k.yield.End != agent.Crashed || k.yield.ExitCode != 7 {
		t.Errorf("an agent that ended: %+v", k.yield)
	}
}

// Neither files nor terminals are offered, and who asks for them is told so.
func TestWhatIsNotThereIsSaidSo(t *testing.T) {
	t.Parallel()
	k := replay(t, acp.Options{}, nil, started, opened, `{"id":"x-1","method":"fs/read_text_file","params":{}}`, `{"method":"_more/notice","params":{}}`, `{"id":null,"method":"odd"}`)
	if got := text(k.sent[0]["params"]); !strings.Contains(got, `"readTextFile":false`) || !strings.Contains(got, `"terminal":false`) {
		t.Errorf("initialize %s", got)
	}
	if len(k.sent) != 4 || k.sent[3]["id"] != "x-1" || !strings.Contains(text(k.sent[3]["error"]), "-32601") {
		t.Errorf("sent %+v", k.sent)
	}
}

func TestASessionIsSetUp(t *testing.T) {
	t.Parallel()
	r := &cli.Run{Settings: &cli.Settings{}, Turn: 1, Workdir: "/w", Message: "do it", Servers: []agent.Server{
		{Name: "one", Transport: "stdio", Command: "c", Args: []string{"d"}},
		{Name: "two", Transport: "streamable-http", URL: "http://two", Headers: map[string]string{"k": "v"}},
		{Name: "three", Transport: "sse", URL: "http://three"},
	}}
	o := acp.Options{Auth: "key", Session: func(*cli.Run) acp.Session {
		return acp.Session{Mode: "fast", Model: "m", Config: map[string]string{"effort": "high"}}
	}}
	empty := func(id int) string { return fmt.Sprintf(`{"id":%d,"result":{}}`, id) }
	k := replay(t, o, r, started, empty(2), `{"id":3,"result":{"sessionId":"s1"}}`, empty(4), empty(5), empty(6), `{"id":7,"result":{"stopReason":"end_turn"}}`)
	if got := strings.Join(k.methods(), " "); got != "initialize authenticate session/new session/set_model session/set_mode session/set_config_option session/prompt" {
		t.Fatalf("sent %s", got)
	}
	if got := text(k.sent[2]["params"]); got != `{"cwd":"/w","mcpServers":[{"args":["d"],"command":"c","env":[],"name":"one"},{"headers":[{"name":"k","value":"v"}],"name":"two","type":"http","url":"http://two"}]}` {
		t.Errorf("session/new %s", got)
	}
	if got := text(k.sent[5]["params"]); got != `{"configId":"effort","sessionId":"s1","value":"high"}` {
		t.Errorf("option %s", got)
	}
	if got := text(k.sent[6]["params"]); !strings.Contains(got, "http://three") || strings.Contains(got, "http://two") {
		t.Errorf("a server that it cannot reach is told of in the message: %s", got)
	}
	if k.yield.End != agent.Done {
		t.Errorf("%+v", k.yield)
	}
}

func TestHowATurnEnds(t *testing.T) {
	t.Parallel()
	stop := func(reason string) []string {
		return []string{started, opened, fmt.Sprintf(`{"id":3,"result":{"stopReason":%q}}`, reason)}
	}
	fail := func(at int, rest string) []string {
		return append([]string{started, opened}[:at-1], fmt.Sprintf(`{"id":%d,"error":{"code":-32603,%s}}`, at, rest))
	}
	o := acp.Options{}
	for _, tt := range []struct {
		name  string
		auth  string
		lines []string
		end   agent.End // empty: the model is down
		says  string
	}{
		{name: "a limit of its own", lines: stop("max_turn_requests"), end: agent.MaxSteps},
		{name: "a refusal", lines: stop("refusal"), end: agent.Refused},
		{name: "no more tokens", lines: stop("max_tokens"), end: agent.Done, says: "max_tokens"},
		{name: "canceled by itself", lines: stop("cancelled"), end: agent.Crashed, says: "cancelled"},
		{name: "a reason of a later version", lines: stop("tired"), end: agent.Done, says: "tired"},
		{name: "an error", lines: fail(3, `"message":"Internal error","data":{"details":"no disk"}`), end: agent.Crashed, says: "session/prompt: Internal error: no disk"},
		{name: "an error with a text", lines: fail(3, `"message":"","data":"why"`), end: agent.Crashed, says: "why"},
		{name: "an error without words", lines: fail(3, `"message":""`), end: agent.Crashed, says: "code -32603"},
		{name: "the model", lines: fail(3, `"message":"Internal error","data":{"message":"status 503"}`), says: "503"},
		{name: "a refusal as an error", lines: fail(3, `"message":"blocked for safety"`), end: agent.Refused},
		{name: "no session", lines: fail(2, `"message":"Authentication required"`), end: agent.Crashed, says: "session/new: Authentication required"},
		{name: "a session without a name", lines: []string{started, `{"id":2,"result":{}}`}, end: agent.Crashed, says: "no session"},
		{name: "another version", lines: []string{`{"id":1,"result":{"protocolVersion":2}}`}, end: agent.Crashed, says: "version 2"},
		{name: "an answer that is none", lines: []string{`{"id":1,"result":[]}`}, end: agent.Crashed, says: "initialize"},
		{name: "no such authentication", auth: "card", lines: []string{started}, end: agent.Crashed, says: `does not support authentication "card": it offers key`},
		{name: "its end", lines: []string{started, opened, says("I"), "Segmentation fault"}, end: agent.Crashed, says: "exit code 7: Segmentation fault"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mine := o
			mine.Auth = tt.auth
			k := replay(t, mine, nil, tt.lines...)
			if tt.end == "" {
				if !errors.Is(k.err, agent.ErrModel) || !strings.Contains(k.err.Error(), tt.says) {
					t.Errorf("%v; want that the model is down", k.err)
				}
				return
			}
			if k.err != nil || k.yield.End != tt.end || !strings.Contains(k.yield.Reason, tt.says) {
				t.Errorf("%+v, %v; want %s and %q", k.yield, k.err, tt.end, tt.says)
			}
		})
	}
}

// Sub-agents are told apart where the agent says whose a call is.
func TestSubagentsAreKeptApart(t *testing.T) {
	t.Parallel()
	k := replay(t, acp.Options{}, nil, started, opened,
		update("tool_call", `"toolCallId":"c1","title":"look","kind":"think","rawInput":{"p":1},"_meta":{"x":{"toolName":"Task"}}`),
		update("tool_call", `"toolCallId":"c2","title":"ls","kind":"execute","rawInput":{"p":2},"_meta":{"x":{"toolName":"Bash","parentToolUseId":"c1"}}`),
		update("tool_call_update", `"toolCallId":"c2","status":"completed","rawOutput":"a","_meta":{"x":{"parentToolUseId":"c1"}}`),
		update("tool_call_update", `"toolCallId":"c1","status":"completed","rawOutput":"found a"`), `{"id":3,"result":{"stopReason":"end_turn"}}`)
	if len(k.steps) != 1 || len(k.steps[0].ToolCalls) != 1 || k.steps[0].ToolCalls[0].Name != "Task" || k.steps[0].Observation.Results[0].Content.Text != "found a" {
		t.Errorf("steps %+v", k.steps)
	}
}

// A reply of the model without text or a call, such as a refusal, is a step.
func TestAReplyWithoutTextIsAStep(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"end_turn", "refusal"} {
		k := replay(t, acp.Options{}, nil, started, opened, fmt.Sprintf(`{"id":3,"result":{"stopReason":%q}}`, reason))
		if len(k.steps) != 1 || k.steps[0].Source != trajectory.Model || k.steps[0].Message.Text != "" {
			t.Errorf("%s: steps %+v", reason, k.steps)
		}
	}
}

// What an agent prints makes valid steps, whatever it is, and always an end.
func FuzzLines(f *testing.F) {
	f.Add([]byte(started + "\n" + opened + "\n" + says("x") + "\n" + `{"id":3,"result":{"stopReason":"end_turn"}}`))
	f.Add([]byte(started + "\n" + opened + "\n" + update("tool_call", `"toolCallId":"c","title":"t","status":"completed","content":[{"type":"diff","path":7}]`)))
	f.Add([]byte(`{"id":1,"error":{}}` + "\n[]\nnull\n{\"method\":7}\n" + `{"id":{},"method":"session/request_permission"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &record{}
		y, sent, err := cli.Replay(cli.Scaffold{Dialog: func(b *cli.Transcript) cli.Dialog { return acp.New(b, acp.Options{}) }},
			&cli.Run{Settings: &cli.Settings{}, Turn: 1}, strings.NewReader(string(b)), cli.Exit{}, r)
		if err != nil || y.End == "" {
			t.Errorf("%+v, %v", y, err)
		}
		for line := range strings.Lines(string(sent)) {
			if !json.Valid([]byte(line)) {
				t.Errorf("sent %q", line)
			}
		}
		if len(r.steps) == 0 {
			return
		}
		if _, odd, err := trajectory.New(trajectory.Agent{Name: "a", Version: "1"}, "s", r.steps); err != nil || len(odd) > 0 {
			t.Errorf("%v, %v", odd, err)
		}
	})
}
