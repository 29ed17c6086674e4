package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

func claudeCode() cli.Scaffold {
	return cli.Scaffold{
		Name: "claude-code", Version: version, Doc: "Claude Code, the CLI of Anthropic, unmodified, inside the sandbox.",
		Recipe: bundle.Recipe{
			Version: "2.1.329", NPM: []string{"@anthropic-ai/claude-code-linux-" + npmArch + "@{version}"}, Debian: []string{"libc6", "bash-static"},
			Links: map[string]string{
				"claude": "npm/node_modules/@anthropic-ai/claude-code-linux-" + npmArch + "/claude", "bash": "usr/bin/bash-static",
			},
		},
		Dialects:  []model.Dialect{model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.MaxTurns, cli.SystemPrompt, cli.AllowedTools, cli.DeniedTools, cli.MCP, cli.Skills},
		Efforts:   []string{"low", "medium", "high", "xhigh", "max"},
		Logs:      []string{"claude/projects"},
		ModelName: "claude-opus-4-8",
		Start:     startClaudeCode,
		Events:    func(b *cli.Book) cli.Events { return &claudeEvents{book: b} },
	}
}

func startClaudeCode(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/claude"
	s := r.Settings
	argv := []string{cli.Bundle + "/bin/claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", "--model", r.Model.Name}
	files := r.SkillLinks("claude/skills")
	if r.Session != "" {
		argv = append(argv, "--resume", r.Session)
	}
	if s.ReasoningEffort != "" {
		argv = append(argv, "--effort", s.ReasoningEffort)
	}
	if s.MaxTurns > 0 {
		argv = append(argv, "--max-turns", strconv.FormatInt(s.MaxTurns, 10))
	}
	if s.SystemPrompt != "" {
		files = append(files, cli.File{Path: "claude/system.md", Data: s.SystemPrompt}) // an argument ends at 128 KiB
		argv = append(argv, "--append-system-prompt-file", home+"/system.md")
	}
	if len(s.AllowedTools) > 0 {
		argv = append(argv, "--tools", strings.Join(s.AllowedTools, ","))
	}
	if len(s.DeniedTools) > 0 {
		argv = append(argv, "--disallowedTools", strings.Join(s.DeniedTools, ","))
	}
	if len(r.Servers) > 0 {
		raw, err := json.Marshal(map[string]any{"mcpServers": mcpServers(r.Servers, "http")})
		if err != nil {
			return cli.Start{}, err
		}
		files = append(files, cli.File{Path: "claude/mcp.json", Data: string(raw)})
		argv = append(argv, "--strict-mcp-config", "--mcp-config", home+"/mcp.json")
	}
	env := map[string]string{
		"CLAUDE_CONFIG_DIR": home, "ANTHROPIC_BASE_URL": r.URL, "ANTHROPIC_API_KEY": r.Model.Token,
		"ANTHROPIC_DEFAULT_HAIKU_MODEL": r.Model.Name, "CLAUDE_CODE_SUBAGENT_MODEL": r.Model.Name, // one model, whatever it is for
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1",
		"IS_SANDBOX":              "1",       // it runs as root, too
		"CLAUDE_CODE_MAX_RETRIES": "2",       // the gateway tries again, and knows when
		"API_TIMEOUT_MS":          "3600000", // the deadline of the turn is the core's
	}
	if r.Shell != "" {
		env["SHELL"] = r.Shell // it wants bash or zsh, and looks for them here
	}
	return cli.Start{Argv: argv, Env: env, Files: files, Stdin: r.Message}, nil
}

// claudeEvents reads stream-json.
type claudeEvents struct {
	book  *cli.Book
	last  *claudeResult
	spent agent.Claim // of the session, when this turn began
}

// claudeEvent is an event, as far as it is read.
type claudeEvent struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	SessionID string `json:"session_id"`
	Parent    string `json:"parent_tool_use_id"` // call that started the sub-agent
	Synthetic bool   `json:"isSynthetic"`
	APIError  bool   `json:"is_api_error_message"`
	Message   struct {
		ID      string          `json:"id"`
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"` // a text, or blocks
	} `json:"message"`
	claudeResult
}

// claudeResult is the last event of a turn.
type claudeResult struct {
	IsError   bool     `json:"is_error"`
	Result    string   `json:"result"`
	Errors    []string `json:"errors"`
	Terminal  string   `json:"terminal_reason"`
	APIStatus *int     `json:"api_error_status"`
	Stop      string   `json:"stop_reason"`
	Cost      *float64 `json:"total_cost_usd"` // of the session
	Models    map[string]struct {
		Input      int64 `json:"inputTokens"`
		Output     int64 `json:"outputTokens"`
		CacheRead  int64 `json:"cacheReadInputTokens"`
		CacheWrite int64 `json:"cacheCreationInputTokens"`
	} `json:"modelUsage"` // of the session
	subtype string
}

// claudeBlock is one block of a message.
type claudeBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	CallID   string          `json:"tool_use_id"`
	Content  json.RawMessage `json:"content"`
	IsError  bool            `json:"is_error"`
}

// Line implements cli.Events.
func (e *claudeEvents) Line(line []byte) {
	var v claudeEvent
	if json.Unmarshal(line, &v) != nil && v.Type == "" {
		return
	}
	switch v.Type {
	case "system":
		if v.Subtype == "init" && v.SessionID != "" {
			e.book.Session = v.SessionID
		}
	case "assistant":
		if v.APIError || v.Message.Model == "<synthetic>" {
			return // the CLI's own words about an error, which the result has, too
		}
		for _, b := range blocks(v.Message.Content) {
			b.record(e.book.In(v.Parent), v.Message.ID)
		}
	case "user":
		book := e.book.In(v.Parent)
		for _, b := range blocks(v.Message.Content) {
			if b.Type == "tool_result" {
				book.Result(b.CallID, textOf(b.Content), b.IsError)
			} else if b.Text != "" && (v.Synthetic || v.Parent != "") {
				book.Note("user", b.Text) // what the CLI adds, or what a sub-agent is told
			}
		}
	case "result":
		v.subtype = v.Subtype
		e.last = &v.claudeResult
	}
}

func (b *claudeBlock) record(book *cli.Book, id string) {
	switch b.Type {
	case "text":
		book.Say(id, b.Text)
	case "thinking":
		book.Think(id, b.Thinking)
	case "tool_use":
		book.Call(id, b.ID, b.Name, b.Input)
	}
}

// End implements cli.Events.
func (e *claudeEvents) End(x cli.Exit) (agent.Yield, error) {
	r := e.last
	e.last = nil
	if r == nil {
		return x.Crashed("it ended without a result"), nil
	}
	y := agent.Yield{End: agent.Done, Message: r.Result, ExitCode: x.ExitCode, Reason: r.Terminal, Claim: e.claim(r)}
	switch {
	case r.subtype == "error_max_turns":
		y.End, y.Reason = agent.MaxSteps, "max_turns is reached"
	case r.Stop == "refusal":
		y.End, y.Reason = agent.Refused, "the model refused"
	case r.Terminal == "api_error" || r.APIStatus != nil:
		status := 0
		if r.APIStatus != nil {
			status = *r.APIStatus
		}
		if cli.Blames(status) {
			return y, cli.Down(r.Result)
		}
		y.End, y.Reason = agent.Crashed, r.Result
	case r.IsError || x.ExitCode != 0:
		why := strings.Join(r.Errors, "; ")
		if why == "" {
			why = r.Result
		}
		claim := y.Claim
		y = x.Crashed(why)
		y.Claim = claim
	}
	return y, nil
}

// claim is what this turn used: what the session has used by now, less what it
// had used before.
func (e *claudeEvents) claim(r *claudeResult) *agent.Claim {
	var in, cached, out int64
	for _, m := range r.Models {
		in, cached, out = in+m.Input+m.CacheRead+m.CacheWrite, cached+m.CacheRead, out+m.Output
	}
	return since(&e.spent, agent.Claim{Input: &in, Cached: &cached, Output: &out, Cost: r.Cost})
}

// mcpServers are servers in the form that most CLIs have taken from each other;
// remote is their word for a server that speaks streamable HTTP.
func mcpServers(list []agent.Server, remote string) map[string]any {
	out := map[string]any{}
	for _, s := range list {
		switch s.Transport {
		case "stdio":
			out[s.Name] = map[string]any{"command": s.Command, "args": append([]string{}, s.Args...)}
		case "sse":
			out[s.Name] = map[string]any{"type": "sse", "url": s.URL, "headers": s.Headers}
		default:
			out[s.Name] = map[string]any{"type": remote, "url": s.URL, "headers": s.Headers}
		}
	}
	return out
}

// blocks are the blocks of a message; a text is one.
func blocks(raw json.RawMessage) (out []claudeBlock) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []claudeBlock{{Type: "text", Text: text}}
	}
	var each []json.RawMessage
	if json.Unmarshal(raw, &each) != nil {
		return nil
	}
	for _, r := range each {
		var b claudeBlock
		if json.Unmarshal(r, &b) == nil {
			out = append(out, b)
		}
	}
	return out
}

// textOf is the text of a tool's result: a text, or blocks with texts.
func textOf(raw json.RawMessage) string {
	var parts []string
	for _, b := range blocks(raw) {
		switch {
		case b.Text != "":
			parts = append(parts, b.Text)
		case b.Type != "" && b.Type != "text":
			parts = append(parts, fmt.Sprintf("[%s]", b.Type))
		}
	}
	return strings.Join(parts, "\n")
}
