package scaffolds

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// setting is a setting of an experiment, and its effect on the real CLI.
type setting struct {
	name    string
	model   string // name of the model
	config  string // of the agent block
	replies []string
	sees    []string        // texts in the requests
	not     []string        // texts in none of them
	tools   []string        // all tools that the first request offers; nil: any
	end     record.AgentEnd // empty: yielded
	verify  string
}

// Texts that only a setting can bring.
const (
	systemMark = "SYSTEM-MARK"
	skillMark  = "SKILL-MARK"
	serverMark = "SERVER-MARK"
)

const (
	systemConfig = `system_prompt = "-` + systemMark + ` says \"be brief\""`
	skillConfig  = `skill "tables" {
  text  = "---\nname: tables\ndescription: ` + skillMark + ` how to read tables\n---\nSee more.md in this folder.\n"
  files = { "more.md" = "count the rows" }
}`
	serverConfig = `mcp "notes" {
  command = ["sh", "/app/server.sh"]
  env     = { NOTE = "` + serverMark + `" }
}`
)

// server speaks the Model Context Protocol on its standard streams. Its tool
// returns its environment.
const server = `#!/bin/sh
while IFS= read -r line; do
	id=$(printf '%s' "$line" | sed -n 's/.*"id":[ ]*\("[^"]*"\|[0-9][0-9]*\).*/\1/p')
	version=$(printf '%s' "$line" | sed -n 's/.*"protocolVersion":[ ]*"\([^"]*\)".*/\1/p')
	case $line in
	*'"initialize"'*) answer='"result":{"protocolVersion":"'$version'","capabilities":{"tools":{}},"serverInfo":{"name":"notes","version":"1"}}' ;;
	*'"tools/list"'*) touch /app/listed; answer='"result":{"tools":[{"name":"tell","description":"tells the note","inputSchema":{"type":"object","properties":{}}}]}' ;;
	*'"tools/call"'*) answer='"result":{"content":[{"type":"text","text":"the note is '$NOTE'"}]}' ;;
	*'"notifications/'*) continue ;;
	*) answer='"error":{"code":-32601,"message":"there is no such method"}' ;;
	esac
	[ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$answer"
done
`

// reply is the reply to the request that follows so many replies.
func reply(turn int, what string) string {
	return fmt.Sprintf("  - {when: {turn: %d}, %s, %s}\n", turn, what, usage)
}

var done = "text: all is done"

// settingsOf returns the settings that a CLI supports, by its name.
func settingsOf(s scaffold) []setting {
	all := map[string][]setting{
		"claude-code": {
			{name: "model", model: "claude-of-mine-7", sees: []string{`"model":"claude-of-mine-7"`}},
			{name: "reasoning_effort", config: `reasoning_effort = "low"`, model: "claude-opus-4-8", sees: []string{`"effort":"low"`}},
			{name: "max_turns", config: "max_turns = 1", end: record.MaxSteps, replies: []string{"  - {" + s.call("on", "echo on") + ", " + usage + "}\n"}},
			{name: "allowed_tools", config: `allowed_tools = ["Bash", "Read"]`, tools: []string{"Bash", "DeferredToolPlaceholder", "Read"}}, // which stands for those that come later
			{name: "denied_tools", config: `denied_tools = ["Write", "Agent"]`, sees: []string{`"name":"Bash"`}, not: []string{`"name":"Write"`, `"name":"Agent"`}},
			{
				name: "mcp", config: serverConfig, sees: []string{"the note is " + serverMark},
				replies: []string{reply(0, "text: I ask., tools: [{name: mcp__notes__tell, arguments: {}}]"), reply(1, done)},
			},
			{
				name: "skill", config: skillConfig, sees: []string{skillMark, "See more.md in this folder", "count the rows"},
				replies: []string{
					reply(0, "text: I look., tools: [{name: Skill, arguments: {skill: tables}}]"),
					reply(1, s.call("more", "cat /var/lib/berth-agent/claude/skills/tables/more.md")), reply(2, done),
				},
			},
		},
		"codex": {
			{name: "model", model: "gpt-5.3-codex", sees: []string{`"model":"gpt-5.3-codex"`}},
			{name: "reasoning_effort", config: `reasoning_effort = "low"`, sees: []string{`"effort":"low"`}},
			{
				name: "mcp", config: serverConfig, sees: []string{"the note is " + serverMark},
				replies: []string{"  - " + rawCall("mcp__notes", "tell") + "\n", reply(1, done)},
			},
			{name: "skill", config: skillConfig, sees: []string{skillMark, "count the rows"}, replies: []string{
				reply(0, s.call("more", "cat /var/lib/berth-agent/codex/skills/tables/more.md")), reply(1, done),
			}},
		},
		"pi": {
			{name: "model", model: "acme/large:high", sees: []string{`"model":"acme/large:high"`}, not: []string{`"reasoning_effort"`}},
			{name: "reasoning_effort", config: `reasoning_effort = "low"`, sees: []string{`"reasoning_effort":"low"`}},
			{name: "allowed_tools", config: `allowed_tools = ["bash", "ls"]`, tools: []string{"bash", "ls"}},
			{name: "skill", config: skillConfig, sees: []string{skillMark, "count the rows"}, replies: []string{
				reply(0, s.call("more", "cat /var/lib/berth-agent/pi/skills/tables/more.md")), reply(1, done),
			}},
		},
		"nanobot": {
			{name: "reasoning_effort", config: `reasoning_effort = "low"`, sees: []string{`"reasoning_effort":"low"`}},
			{name: "max_turns", config: "max_turns = 1", end: record.MaxSteps, replies: []string{"  - {" + s.call("on", "echo on") + ", " + usage + "}\n", reply(1, done)}},
			{
				name: "mcp", config: serverConfig, sees: []string{"the note is " + serverMark},
				replies: []string{reply(0, "text: I ask., tools: [{name: mcp_notes_tell, arguments: {}}]"), reply(1, done)},
			},
			{name: "skill", config: skillConfig, sees: []string{skillMark}},
			{ // it works where the task is, and leaves nothing of its own there
				name: "workdir", verify: "[ -e /app/here ]",
				replies: []string{reply(0, s.call("where", `[ "$(pwd)" = /app ] && [ "$(ls -A)" = server.sh ] && touch /app/here`)), reply(1, done)},
			},
		},
		"gemini-cli": {
			{name: "model", model: "gemini-of-mine-7", sees: []string{"MARK-set"}},
			{name: "max_turns", config: "max_turns = 1", end: record.MaxSteps, replies: []string{"  - {" + s.call("on", "echo on") + ", " + usage + "}\n"}},
			{
				name: "mcp", config: serverConfig, sees: []string{"the note is " + serverMark},
				replies: []string{reply(0, "text: I ask., tools: [{name: mcp_notes_tell, arguments: {}}]"), reply(1, done)},
			},
			{name: "skill", config: skillConfig, sees: []string{skillMark}},
			{name: "allowed_tools", config: `allowed_tools = ["run_shell_command", "glob"]`, sees: []string{`"name":"glob"`}, not: []string{`"name":"write_file"`}},
			{name: "denied_tools", config: `denied_tools = ["write_file"]`, sees: []string{`"name":"glob"`}, not: []string{`"name":"write_file"`}},
		},
	}
	maps.Copy(all, settingsOfMore(s))
	list := all[s.name]
	if len(list) > 0 && s.name != "openclaw" {
		list = append(list, setting{ // the reply is for requests whose instructions say so
			name: "system_prompt", config: systemConfig, sees: []string{`says \"be brief\"`},
			replies: []string{"  - {when: {system: \"-" + systemMark + "\"}, " + done + ", " + usage + "}\n"},
		}, setting{
			name: "env", config: `env = { SAID = "by the experiment" }`, replies: []string{reply(0, s.call("env", "test \"$SAID\" = 'by the experiment' && touch /app/said")), reply(1, done)},
			verify: "[ -e /app/said ]",
		})
	}
	return list
}

// settingsOfMore returns those of CLIs that `make test-scaffolds` runs.
func settingsOfMore(s scaffold) map[string][]setting {
	return map[string][]setting{
		"opencode": {
			{name: "model", model: "acme/large", sees: []string{`"model":"acme/large"`}},
			{ // it asks for a last word then
				name: "max_turns", config: "max_turns = 1", sees: []string{"MAXIMUM STEPS REACHED"},
				replies: []string{reply(0, s.call("on", "echo on")), reply(1, done)},
			},
			{name: "reasoning_effort", config: `reasoning_effort = "low"`, sees: []string{`"reasoning_effort":"low"`}},
			{name: "allowed_tools", config: `allowed_tools = ["bash", "read"]`, tools: []string{"bash", "read"}},
			{name: "denied_tools", config: `denied_tools = ["write"]`, sees: []string{`"name":"bash"`}, not: []string{`"name":"write"`}},
			{
				name: "mcp", config: serverConfig + "\nallowed_tools = [\"bash\"]", sees: []string{"the note is " + serverMark},
				replies: []string{reply(0, "text: I ask., tools: [{name: notes_tell, arguments: {}}]"), reply(1, done)},
			},
			{name: "skill", config: skillConfig, sees: []string{skillMark}},
		},
		"qwen-code": {
			{name: "model", model: "acme/large", sees: []string{`"model":"acme/large"`}},
			{name: "max_turns", config: "max_turns = 1", end: record.MaxSteps, replies: []string{"  - {" + s.call("on", "echo on") + ", " + usage + "}\n"}},
			{name: "reasoning_effort", config: `reasoning_effort = "low"`, sees: []string{`"reasoning_effort":"low"`}},
			{name: "allowed_tools", config: `allowed_tools = ["run_shell_command", "read_file"]`, tools: []string{"read_file", "run_shell_command"}},
			{name: "denied_tools", config: `denied_tools = ["write_file"]`, sees: []string{`"name":"read_file"`}, not: []string{`"name":"write_file"`}},
			{
				name: "mcp", config: serverConfig, sees: []string{"the note is " + serverMark},
				replies: []string{reply(0, "text: I ask., tools: [{name: mcp__notes__tell, arguments: {}}]"), reply(1, done)},
			},
			{name: "skill", config: skillConfig, sees: []string{skillMark}},
		},
		"openhands": {
			{name: "model", model: "acme/large", sees: []string{`"model": "acme/large"`}},
			{name: "reasoning_effort", config: `reasoning_effort = "low"`, sees: []string{`"reasoning_effort": "low"`}},
			{name: "max_turns", config: "max_turns = 1", end: record.MaxSteps, replies: []string{"  - {" + s.call("on", "echo on") + ", " + usage + "}\n"}},
			{name: "allowed_tools", config: `allowed_tools = ["terminal"]`, tools: []string{"finish", "terminal", "think"}},
			{name: "denied_tools", config: `denied_tools = ["file_editor"]`, sees: []string{`"name": "terminal"`}, not: []string{`"name": "file_editor"`}},
			{
				name: "mcp", config: serverConfig, sees: []string{"the note is " + serverMark},
				replies: []string{reply(0, "text: I ask., tools: [{name: tell, arguments: {security_risk: LOW}}]"), reply(1, done)},
			},
			{name: "skill", config: skillConfig, sees: []string{skillMark, "count the rows"}, replies: []string{
				reply(0, s.call("more", "cat /var/lib/berth-agent/openhands/skills/tables/more.md")), reply(1, done),
			}},
			{ // it works where the task is, leaves nothing of its own there, and its commands do not see the token
				name: "workdir", verify: "[ -e /app/here ]",
				replies: []string{reply(0, s.call("where", `[ "$(pwd)" = /app ] && [ "$(ls -A)" = server.sh ] && ! env | grep -E '^(LLM|BERTH|OPENHANDS)_' && touch /app/here`)), reply(1, done)},
			},
		},
		"openclaw": { // which keeps the tools of servers behind a search
			{name: "model", model: "acme/large", sees: []string{`"model":"acme/large"`}},
			{name: "reasoning_effort", config: `reasoning_effort = "low"`, sees: []string{`"reasoning_effort":"low"`}},
			{name: "mcp", config: serverConfig, verify: "[ -e /app/listed ]"},
			{name: "skill", config: skillConfig, sees: []string{skillMark}},
		},
	}
}

// rawCall is a call of a tool in a namespace, as the Responses API streams it.
// The format of scripts cannot express it.
func rawCall(namespace, name string) string {
	item := map[string]any{
		"type": "function_call", "id": "fc_1", "call_id": "call_1", "namespace": namespace, "name": name, "arguments": "{}", "status": "completed",
	}
	response := map[string]any{"id": "resp_1", "object": "response", "status": "in_progress", "model": "gpt-5.5", "output": []any{}}
	ended := map[string]any{
		"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5.5", "output": []any{item},
		"usage": map[string]any{"input_tokens": 100, "output_tokens": 10, "total_tokens": 110},
	}
	var b strings.Builder
	for i, e := range []map[string]any{
		{"type": "response.created", "response": response},
		{"type": "response.output_item.added", "output_index": 0, "item": item},
		{"type": "response.output_item.done", "output_index": 0, "item": item},
		{"type": "response.completed", "response": ended},
	} {
		e["sequence_number"] = i
		raw, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e["type"], raw)
	}
	text, err := json.Marshal(b.String())
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("{when: {turn: 0}, raw: %s}", text)
}

// Each setting that a CLI supports has its effect, which is seen in the
// requests to the model or in what the CLI does.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			for _, x := range settingsOf(s) {
				t.Run(x.name, func(t *testing.T) {
					t.Parallel()
					x.try(t, s)
				})
			}
		})
	}
}

func (x setting) try(t *testing.T, s scaffold) {
	s.config, s.model = x.config, x.model
	if len(x.replies) == 0 {
		x.replies = []string{reply(0, done)}
	}
	if x.end == "" {
		x.end = record.Yielded
	}
	dir := t.TempDir()
	s.lay(t, dir, map[string]ending{"set": {replies: x.replies, verify: x.verify}})
	env := filepath.Join(dir, "tasks", "set", "environment")
	e2etest.Write(t, env, map[string]string{"server.sh": server, "Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY server.sh /app/server.sh\n"})
	attempt := ran(t, dir)
	r := e2etest.Result(t, attempt)
	if r.Outcome != record.Passed || r.AgentEnd != x.end {
		t.Errorf("%s / %s, want passed / %s: %+v\nturns: %s\nprinted: %s\n%s", r.Outcome, r.AgentEnd, x.end, r.Error, e2etest.Read(t, attempt, "turns.jsonl"),
			e2etest.Read(t, attempt, "agent/stdout.jsonl"), e2etest.Read(t, attempt, "agent/stderr.txt"))
	}
	for _, f := range r.Findings {
		if f.Code == "other_model" {
			t.Errorf("finding %s: %s", f.Code, f.Text)
		}
	}
	asked := requests(t, attempt)
	if len(asked) == 0 {
		t.Fatal("no request")
	}
	all := strings.Join(asked, "\n")
	for _, text := range x.sees {
		if !strings.Contains(all, text) {
			t.Errorf("%s of %s: no request has %q; requests:\n%.3000s", x.name, s.name, text, all)
		}
	}
	for _, text := range x.not {
		if strings.Contains(all, text) {
			t.Errorf("%s of %s: a request has %q", x.name, s.name, text)
		}
	}
	if got := offered(t, asked[0]); x.tools != nil && !slices.Equal(got, x.tools) {
		t.Errorf("%s of %s: offered %q, want %q", x.name, s.name, got, x.tools)
	}
}

// ran runs an experiment of one trial and returns the folder of its attempt.
func ran(t *testing.T, dir string) string {
	t.Helper()
	if code, _, stderr := tree.Berth(t, dir, "run", "--json"); code != 0 && code != 1 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	_, out, _ := tree.Berth(t, dir, "show", "last", "--json")
	var show output.ShowRun
	if err := json.Unmarshal([]byte(out), &show); err != nil || len(show.Trials) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	return show.Trials[0].Attempts[0].Dir
}

// requests returns the bodies that the CLI sent, as the gateway keeps them.
func requests(t *testing.T, attempt string) (all []string) {
	t.Helper()
	for _, x := range e2etest.Lines[gateway.Exchange](t, attempt, record.ExchangesFile) {
		b, err := recording.Fetch(filepath.Join(attempt, record.ModelDir), x.Request)
		e2etest.Must(t, err)
		all = append(all, string(b))
	}
	return all
}

// offered returns the names of the tools of a request, sorted.
func offered(t *testing.T, request string) (names []string) {
	t.Helper()
	var r struct {
		Tools []struct {
			Name     string `json:"name"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}
	e2etest.Must(t, errors.Join(json.Unmarshal([]byte(request), &r)))
	for _, tool := range r.Tools {
		names = append(names, tool.Name+tool.Function.Name)
	}
	slices.Sort(names)
	return names
}
