package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-eval/berth/agents/scaffolds/internal/streamjson"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

// rustArch is this machine in the names of Codex's programs.
var rustArch = map[string]string{"x64": "x86_64", "arm64": "aarch64"}[npmArch] + "-unknown-linux-musl"

func codex() cli.Scaffold {
	return cli.Scaffold{
		Name: "codex", Version: version, Doc: "Codex, the CLI of OpenAI, unmodified, inside the sandbox.",
		Recipe: bundle.Recipe{
			Version: "0.169.0", NPM: []string{"@openai/codex@{version}-linux-" + npmArch}, Debian: []string{"bash-static"},
			Links: map[string]string{"codex": "npm/node_modules/@openai/codex/vendor/" + rustArch + "/bin/codex", "bash": "usr/bin/bash-static"},
			Drop:  []string{"npm/node_modules/@openai/codex/vendor/*/codex-resources/voice"},
		},
		Dialects:   []model.Dialect{model.DialectOpenAI},
		Knobs:      []cli.Knob{cli.Effort, cli.SystemPrompt, cli.MCP, cli.Skills},
		Transports: []string{"stdio", "streamable-http"},
		Logs:       []string{"codex/sessions"},
		ModelName:  "gpt-5.5",
		Prior:      true,
		Start:      startCodex,
		Events:     func(b *cli.Transcript) cli.Events { return &codexEvents{book: b, end: cli.Ending{Open: midway}} },
	}
}

func startCodex(r *cli.Run) (cli.Start, error) {
	start := cli.Start{
		Argv:  []string{cli.Bundle + "/bin/codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"},
		Stdin: r.Message, Files: r.SkillLinks("codex/skills"),
		Env: map[string]string{"CODEX_HOME": cli.Home + "/codex", "BERTH_MODEL_TOKEN": r.Model.Token},
	}
	start.Text("codex/config.toml", codexConfig(r))
	session := r.Session
	if r.Prior != nil {
		session = codexPrior(r, &start)
	}
	start.Options("resume", session)
	start.Argv = append(start.Argv, "-") // the message is on standard input
	if r.Shell == cli.Bash {
		start.Env["SHELL"] = r.Shell
	}
	return start, nil
}

// codexConfig returns config.toml. It writes texts as JSON, because a JSON text
// is also a TOML text.
func codexConfig(r *cli.Run) string {
	var b strings.Builder
	set := func(key, value string) { fmt.Fprintf(&b, "%s = %s\n", key, quote(value)) }
	set("model", r.Model.Name)
	set("model_provider", "berth")
	if e := r.Settings.ReasoningEffort; e != "" {
		set("model_reasoning_effort", e)
	}
	if p := r.Settings.SystemPrompt; p != "" {
		set("developer_instructions", p)
	}
	b.WriteString("check_for_update_on_startup = false\n[analytics]\nenabled = false\n[features]\nplugins = false\napps = false\nunbounded_connection_retries = false\n[model_providers.berth]\n")
	set("name", "berth")
	set("base_url", r.URL+"/v1")
	set("env_key", "BERTH_MODEL_TOKEN")
	set("wire_api", "responses")
	// The gateway retries, and knows when to. It sends nothing until then.
	b.WriteString("request_max_retries = 1\nstream_max_retries = 1\nstream_idle_timeout_ms = 3600000\n")
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "[mcp_servers.%s]\n", quote(s.Name))
		switch s.Transport {
		case "stdio":
			set("command", s.Command)
			fmt.Fprintf(&b, "args = [%s]\n", quotes(s.Args))
		default:
			set("url", s.URL)
			if len(s.Headers) > 0 {
				fmt.Fprintf(&b, "[mcp_servers.%s.http_headers]\n", quote(s.Name))
				for k, v := range s.Headers {
					set(quote(k), v)
				}
			}
		}
	}
	return b.String()
}

// codexEvents reads the output of `codex exec --json`.
type codexEvents struct {
	book *cli.Transcript
	end  cli.Ending
	// said says that the model has said or called anything in this turn, and
	// answered that nothing is awaited from it.
	said, answered bool
}

type codexEvent struct {
	Type   string    `json:"type"`
	Thread string    `json:"thread_id"`
	Item   codexItem `json:"item"`
	Usage  *struct {
		Input  int64 `json:"input_tokens"`
		Cached int64 `json:"cached_input_tokens"`
		Output int64 `json:"output_tokens"`
	} `json:"usage"` // of the thread
	Message string `json:"message"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
}

// codexItem is a message or a call with its result.
type codexItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Message   string          `json:"message"`
	Status    string          `json:"status"`
	Command   string          `json:"command"`
	Output    string          `json:"aggregated_output"`
	Exit      *int            `json:"exit_code"`
	Changes   json.RawMessage `json:"changes"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    struct {
		Content json.RawMessage `json:"content"`
	} `json:"result"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
	Query string `json:"query"`
}

// Line implements cli.Events.
func (e *codexEvents) Line(line []byte) {
	var v codexEvent
	if !cli.Parse(line, &v) {
		return
	}
	switch v.Type {
	case "thread.started":
		e.book.Session = v.Thread
	case "item.started":
		e.call(&v.Item)
	case "item.completed":
		e.completed(&v.Item)
	case "turn.completed":
		e.end = cli.Ending{}
		var used agent.Claim
		if u := v.Usage; u != nil {
			used = e.book.UsedSoFar(cli.Tokens(u.Input, u.Cached, u.Output))
		}
		if !e.answered { // a reply without text, such as a refusal, is in no event
			if e.said {
				used = agent.Claim{} // of other replies, too
			}
			e.book.Empty(used)
		}
	case "turn.failed":
		e.end.Wrong = cmp.Or(v.Error.Message, unsaid)
	case "error":
		e.book.Log("codex: %s", v.Message)
		e.end.Wrong = v.Message
	}
}

// call begins a call; false: the item is none. Some calls are reported when they
// start, others only when they end.
func (e *codexEvents) call(i *codexItem) bool {
	name, args := "", any(nil)
	switch i.Type {
	case "command_execution":
		name, args = "exec_command", map[string]string{"command": i.Command}
	case "file_change":
		name, args = "apply_patch", map[string]json.RawMessage{"changes": i.Changes}
	case "mcp_tool_call":
		name, args = i.Server+"__"+i.Tool, i.Arguments
	case "web_search":
		name, args = "web_search", map[string]string{"query": i.Query}
	default:
		return false
	}
	raw, err := json.Marshal(args)
	if err != nil {
		raw = nil
	}
	e.book.Call("", i.ID, name, raw)
	return true
}

func (e *codexEvents) completed(i *codexItem) {
	switch i.Type {
	case "agent_message":
		e.said, e.answered = true, i.Text != ""
		e.book.Say("", i.Text)
	case "reasoning":
		e.book.Think("", i.Text)
	case "error":
		e.book.Log("codex: %s", i.Message)
	default:
		if e.call(i) {
			e.said, e.answered = true, false
		}
		text := i.Output
		switch {
		case i.Error.Message != "":
			text = i.Error.Message
		case len(i.Result.Content) > 0:
			text = streamjson.Text(i.Result.Content)
		case i.Exit != nil && *i.Exit != 0:
			text = fmt.Sprintf("%s\n[exit code %d]", text, *i.Exit)
		case text == "":
			text = i.Status
		}
		e.book.Result(i.ID, text, i.Status == "failed")
	}
}

// End implements cli.Events.
func (e *codexEvents) End(x cli.Exit) (agent.Yield, error) { return e.book.Judge(x, e.end) }
