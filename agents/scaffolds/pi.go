package main

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/berth-eval/berth/agents/scaffolds/internal/streamjson"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

func pi() cli.Scaffold {
	return cli.Scaffold{
		Name: "pi", Version: version, Doc: "pi, a coding agent with four tools, unmodified, inside the sandbox.",
		Recipe: node(bundle.Recipe{
			Version: "0.73.1", NPM: []string{"@mariozechner/pi-coding-agent@{version}"},
			Links: map[string]string{"pi": "npm/node_modules/@mariozechner/pi-coding-agent/dist/cli.js"},
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.SystemPrompt, cli.AllowedTools, cli.Skills},
		Efforts:   []string{"off", "minimal", "low", "medium", "high", "xhigh"},
		Logs:      []string{"pi/sessions"},
		ModelName: "model",
		Start:     startPi,
		Events:    func(b *cli.Transcript) cli.Events { return &piEvents{b, cli.Ending{Open: midway}} },
	}
}

func startPi(r *cli.Run) (cli.Start, error) {
	s := r.Settings
	start := cli.Start{
		Argv:  []string{cli.Bundle + "/bin/node", cli.Bundle + "/bin/pi", "--mode", "json", "-p", "--offline", "--provider", "berth"},
		Stdin: r.Message, Files: r.SkillLinks("pi/skills"),
		Env: map[string]string{"PI_CODING_AGENT_DIR": cli.Home + "/pi", "PI_OFFLINE": "1", "PI_TELEMETRY": "0", "BERTH_MODEL_TOKEN": r.Model.Token},
	}
	start.Options(
		"--model", r.Model.Name, "--session", r.Session, "--thinking", s.ReasoningEffort,
		"--append-system-prompt", start.Text("pi/system.md", s.SystemPrompt), // as an argument, the text itself could be taken for a file name
		"--tools", strings.Join(s.AllowedTools, ","),
	)
	start.JSON("pi/models.json", map[string]any{"providers": map[string]any{"berth": piProvider(r, "BERTH_MODEL_TOKEN", nil)}})
	// The gateway retries, and knows when to.
	start.Text("pi/settings.json", `{"retry": {"enabled": false, "provider": {"maxRetries": 1}}}`)
	return start, nil
}

// piProvider describes the model for pi and for OpenClaw, which is based on pi.
// compat lists further features of the API that they do not expect; nil: none.
func piProvider(r *cli.Run, key string, compat map[string]bool) map[string]any {
	e := r.Settings.ReasoningEffort
	return map[string]any{
		"baseUrl": r.BaseURL(), "apiKey": key,
		"api": map[model.Dialect]string{
			model.DialectOpenAIChat: "openai-completions", model.DialectOpenAI: "openai-responses", model.DialectAnthropic: "anthropic-messages",
		}[r.Model.Dialect],
		"models": []map[string]any{given(map[string]any{
			"compat": compat, "id": r.Model.Name, "name": r.Model.Name, "reasoning": e != "" && e != "off", "input": []string{"text", "image"},
			"cost": map[string]int{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": 200000, "maxTokens": 32000,
		})},
	}
}

// piEvents reads the output of `pi --mode json` and OpenClaw's transcript.
type piEvents struct {
	book *cli.Transcript
	end  cli.Ending
}

type piEvent struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Message struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		CallID  string          `json:"toolCallId"`
		IsError bool            `json:"isError"`
		Stop    string          `json:"stopReason"`
		Error   string          `json:"errorMessage"`
		Usage   *struct {
			Input      int64 `json:"input"` // without cached ones
			Output     int64 `json:"output"`
			CacheRead  int64 `json:"cacheRead"`
			CacheWrite int64 `json:"cacheWrite"`
		} `json:"usage"`
	} `json:"message"`
}

// Line implements cli.Events.
func (e *piEvents) Line(line []byte) {
	var v piEvent
	if !cli.Parse(line, &v) {
		return
	}
	switch m := &v.Message; {
	case v.Type == "session" && v.ID != "":
		e.book.Session = v.ID
	case v.Type != "message_end" && v.Type != "message":
	case m.Role == "assistant":
		said := streamjson.Message(m.Content)
		said.Stop = m.Stop
		e.end = cli.Ending{Message: said.Text, Reason: m.Stop}
		switch m.Stop {
		case "error":
			e.end.Wrong = cmp.Or(m.Error, unsaid)
		case "toolUse":
			e.end.Open = midway
		}
		if u := m.Usage; u != nil && (m.Stop != "error" || u.Input+u.CacheRead+u.Output > 0) { // a refusal is an error with usage
			said.Usage = cli.Tokens(u.Input+u.CacheRead+u.CacheWrite, u.CacheRead, u.Output)
		}
		e.book.Message(said)
	case m.Role == "toolResult":
		e.book.Result(m.CallID, streamjson.Text(m.Content), m.IsError)
	}
}

// End implements cli.Events. The exit code is 0 even if the model failed.
func (e *piEvents) End(x cli.Exit) (agent.Yield, error) { return e.book.Judge(x, e.end) }
