package main

import (
	"encoding/json"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

func geminiCLI() cli.Scaffold {
	return cli.Scaffold{
		Name: "gemini-cli", Version: version, Doc: "Gemini CLI, the CLI of Google, unmodified, inside the sandbox.",
		Recipe: node(bundle.Recipe{
			Version: "0.61.0", NPM: []string{"@google/gemini-cli@{version}"},
			Links: map[string]string{"gemini": "npm/node_modules/@google/gemini-cli/bundle/gemini.js"},
		}),
		Dialects:  []model.Dialect{model.DialectGemini},
		Knobs:     []cli.Knob{cli.MaxTurns, cli.SystemPrompt, cli.AllowedTools, cli.DeniedTools, cli.MCP, cli.Skills},
		Logs:      []string{"gemini/.gemini/tmp"},
		ModelName: "gemini-3-pro",
		Start:     startGemini,
		Events:    func(b *cli.Book) cli.Events { return &geminiEvents{book: b} },
	}
}

func startGemini(r *cli.Run) (cli.Start, error) {
	settings := map[string]any{
		"security": map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"privacy":  map[string]any{"usageStatisticsEnabled": false},
		// The gateway tries again, and knows when.
		"general": map[string]any{"maxAttempts": 2, "enableAutoUpdate": false, "enableAutoUpdateNotification": false},
	}
	if n := r.Settings.MaxTurns; n > 0 {
		settings["model"] = map[string]any{"maxSessionTurns": n}
	}
	tools := map[string]any{}
	if t := r.Settings.AllowedTools; len(t) > 0 {
		tools["core"] = t
	}
	if t := r.Settings.DeniedTools; len(t) > 0 {
		tools["exclude"] = t
	}
	settings["tools"] = tools
	files := r.SkillLinks("gemini/.gemini/skills")
	if p := r.Settings.SystemPrompt; p != "" {
		files = append(files, cli.File{Path: "gemini/.gemini/GEMINI.md", Data: p})
	}
	if len(r.Servers) > 0 {
		servers := map[string]any{}
		for _, s := range r.Servers {
			switch s.Transport {
			case "stdio":
				servers[s.Name] = map[string]any{"command": s.Command, "args": append([]string{}, s.Args...), "trust": true}
			case "sse":
				servers[s.Name] = map[string]any{"url": s.URL, "headers": s.Headers, "trust": true}
			default:
				servers[s.Name] = map[string]any{"httpUrl": s.URL, "headers": s.Headers, "trust": true}
			}
		}
		settings["mcpServers"] = servers
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		return cli.Start{}, err
	}
	argv := []string{
		cli.Bundle + "/bin/node", cli.Bundle + "/bin/gemini", "--yolo", "--output-format", "stream-json", "--skip-trust", "--model", r.Model.Name,
	}
	if r.Session != "" {
		argv = append(argv, "--resume", r.Session)
	}
	return cli.Start{
		Argv: argv, Stdin: r.Message,
		Files: append(files, cli.File{Path: "gemini/.gemini/settings.json", Data: string(raw)}),
		Env: map[string]string{
			"GEMINI_CLI_HOME": cli.Home + "/gemini", "GEMINI_API_KEY": r.Model.Token, "GOOGLE_GEMINI_BASE_URL": r.URL,
			"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_TELEMETRY_ENABLED": "false",
		},
	}, nil
}

// geminiEvents reads stream-json.
type geminiEvents struct {
	book *cli.Book
	text strings.Builder // of the message that is open
	said string          // the newest text
	last *geminiEvent    // the result
}

type geminiEvent struct {
	Type       string          `json:"type"`
	Session    string          `json:"session_id"`
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	ToolName   string          `json:"tool_name"`
	ToolID     string          `json:"tool_id"`
	Parameters json.RawMessage `json:"parameters"`
	Status     string          `json:"status"`
	Output     string          `json:"output"`
	Message    string          `json:"message"`
	Error      struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	Stats *struct {
		Input  int64 `json:"input_tokens"`
		Cached int64 `json:"cached"`
		Output int64 `json:"output_tokens"`
	} `json:"stats"` // of the run
}

// Line implements cli.Events. Texts come in pieces without an id, so a message
// ends where a call begins.
func (e *geminiEvents) Line(line []byte) {
	var v geminiEvent
	if json.Unmarshal(line, &v) != nil && v.Type == "" {
		return
	}
	switch v.Type {
	case "init":
		e.book.Session = v.Session
		e.text.Reset()
	case "message":
		if v.Role == "assistant" {
			e.text.WriteString(v.Content)
		}
	case "tool_use":
		e.say()
		e.book.Call("", v.ToolID, v.ToolName, v.Parameters)
	case "tool_result":
		out := v.Output
		if out == "" {
			out = v.Error.Message
		}
		e.book.Result(v.ToolID, out, v.Status == "error")
	case "error":
		e.book.Log("gemini-cli: %s", v.Message)
	case "result":
		e.say()
		e.last = &v
	}
}

// say hands over the text so far.
func (e *geminiEvents) say() {
	e.book.Say("", e.text.String())
	if t := e.text.String(); t != "" {
		e.said = t
	}
	e.text.Reset()
}

// End implements cli.Events. Its exit code is the status of a failed request.
func (e *geminiEvents) End(x cli.Exit) (agent.Yield, error) {
	r, said := e.last, e.said
	e.last, e.said = nil, ""
	if r == nil {
		return x.Crashed("it ended without a result"), nil
	}
	y := agent.Yield{End: agent.Done, Message: said, ExitCode: x.ExitCode}
	if s := r.Stats; s != nil {
		y.Claim = &agent.Claim{Input: &s.Input, Cached: &s.Cached, Output: &s.Output}
	}
	switch {
	case r.Error.Type == "FatalTurnLimitedError" || x.ExitCode == 53:
		y.End, y.Reason = agent.MaxSteps, "max_turns is reached"
	case r.Status == "error" && refusal.MatchString(r.Error.Message):
		y.End, y.Reason = agent.Refused, r.Error.Message
	case r.Status == "error" && blamesModel(r.Error.Message):
		return y, cli.Down(r.Error.Message)
	case r.Status == "error" || x.ExitCode != 0 || x.Signal != 0:
		claim := y.Claim
		y = x.Crashed(r.Error.Message)
		y.Claim = claim
	}
	return y, nil
}
