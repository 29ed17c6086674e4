package main

import (
	"cmp"
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
		Events:    func(b *cli.Transcript) cli.Events { return &geminiEvents{book: b, end: cli.Ending{Open: noResult}} },
	}
}

func startGemini(r *cli.Run) (cli.Start, error) {
	s := r.Settings
	start := cli.Start{
		Argv:  []string{cli.Bundle + "/bin/node", cli.Bundle + "/bin/gemini", "--yolo", "--output-format", "stream-json", "--skip-trust"},
		Stdin: r.Message, Files: r.SkillLinks("gemini/.gemini/skills"),
		Env: map[string]string{
			"GEMINI_CLI_HOME": cli.Home + "/gemini", "GEMINI_API_KEY": r.Model.Token, "GOOGLE_GEMINI_BASE_URL": r.BaseURL(),
			"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_TELEMETRY_ENABLED": "false",
		},
	}
	start.Options("--model", r.Model.Name, "--resume", r.Session)
	start.Text("gemini/.gemini/GEMINI.md", s.SystemPrompt)
	start.JSON("gemini/.gemini/settings.json", given(map[string]any{
		"security": map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"privacy":  map[string]any{"usageStatisticsEnabled": false},
		// The gateway retries, and knows when to.
		"general":    map[string]any{"maxAttempts": 2, "enableAutoUpdate": false, "enableAutoUpdateNotification": false},
		"model":      given(map[string]any{"maxSessionTurns": s.MaxTurns}),
		"tools":      given(map[string]any{"core": s.AllowedTools, "exclude": s.DeniedTools}),
		"mcpServers": trusted(r.Servers),
	}))
	return start, nil
}

// trusted returns servers in the form of Gemini CLI and Qwen Code.
func trusted(list []agent.Server) map[string]map[string]any {
	out := mcpServers(list, "http")
	for _, s := range out {
		if s["type"] == "http" {
			s["httpUrl"] = s["url"]
			delete(s, "url")
		}
		delete(s, "type")
		s["trust"] = true
	}
	return out
}

// geminiEvents reads stream-json.
type geminiEvents struct {
	book *cli.Transcript
	text strings.Builder // of the current message
	end  cli.Ending
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
// ends when a call begins.
func (e *geminiEvents) Line(line []byte) {
	var v geminiEvent
	if !cli.Parse(line, &v) {
		return
	}
	switch v.Type {
	case "init":
		e.book.Session = v.Session
	case "message":
		if v.Role == "assistant" {
			e.text.WriteString(v.Content)
		}
	case "tool_use":
		e.say()
		e.book.Call("", v.ToolID, v.ToolName, v.Parameters)
	case "tool_result":
		e.book.Result(v.ToolID, cmp.Or(v.Output, v.Error.Message), v.Status == "error")
	case "error":
		e.book.Log("gemini-cli: %s", v.Message)
	case "result":
		e.say()
		e.end = cli.Ending{Limit: v.Error.Type == "FatalTurnLimitedError"}
		if v.Status == "error" {
			e.end.Wrong = cmp.Or(v.Error.Message, unsaid)
		}
		if u := v.Stats; u != nil {
			e.book.Used(cli.Tokens(u.Input, u.Cached, u.Output))
		}
	}
}

// say adds the text so far as a message.
func (e *geminiEvents) say() {
	e.book.Say("", e.text.String())
	e.text.Reset()
}

// End implements cli.Events. The exit code is the status of a failed request,
// or tells that a limit of the CLI ended the turn.
func (e *geminiEvents) End(x cli.Exit) (agent.Yield, error) {
	e.end.Limit = e.end.Limit || x.ExitCode == 53
	return e.book.Judge(x, e.end)
}
