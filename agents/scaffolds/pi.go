package main

import (
	"encoding/json"
	"fmt"
	"strings"

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
		Events:    func(b *cli.Book) cli.Events { return &piEvents{book: b} },
	}
}

func startPi(r *cli.Run) (cli.Start, error) {
	s := r.Settings
	api, base := "openai-completions", r.URL+"/v1"
	switch r.Model.Dialect {
	case model.DialectOpenAI:
		api = "openai-responses"
	case model.DialectAnthropic:
		api, base = "anthropic-messages", r.URL
	default:
	}
	models, err := json.Marshal(map[string]any{"providers": map[string]any{"berth": map[string]any{
		"baseUrl": base, "api": api, "apiKey": "BERTH_MODEL_TOKEN",
		"models": []any{map[string]any{
			"id": r.Model.Name, "name": r.Model.Name, "reasoning": s.ReasoningEffort != "" && s.ReasoningEffort != "off", "input": []string{"text", "image"},
			"cost": map[string]int{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": 200000, "maxTokens": 32000,
		}},
	}}})
	if err != nil {
		return cli.Start{}, err
	}
	files := append(r.SkillLinks("pi/skills"), cli.File{Path: "pi/models.json", Data: string(models)}, cli.File{
		// The gateway tries again, and knows when.
		Path: "pi/settings.json", Data: `{"retry": {"enabled": false, "provider": {"maxRetries": 1}}}`,
	})
	argv := []string{cli.Bundle + "/bin/node", cli.Bundle + "/bin/pi", "--mode", "json", "-p", "--offline", "--provider", "berth", "--model", r.Model.Name}
	if r.Session != "" {
		argv = append(argv, "--session", r.Session)
	}
	if s.ReasoningEffort != "" {
		argv = append(argv, "--thinking", s.ReasoningEffort)
	}
	if s.SystemPrompt != "" {
		files = append(files, cli.File{Path: "pi/system.md", Data: s.SystemPrompt}) // of an argument it thinks that it may be a file
		argv = append(argv, "--append-system-prompt", cli.Home+"/pi/system.md")
	}
	if len(s.AllowedTools) > 0 {
		argv = append(argv, "--tools", strings.Join(s.AllowedTools, ","))
	}
	return cli.Start{
		Argv: argv, Stdin: r.Message, Files: files,
		Env: map[string]string{"PI_CODING_AGENT_DIR": cli.Home + "/pi", "PI_OFFLINE": "1", "PI_TELEMETRY": "0", "BERTH_MODEL_TOKEN": r.Model.Token},
	}, nil
}

// piEvents reads what `pi --mode json` prints.
type piEvents struct {
	book  *cli.Book
	count int // messages of the model
	last  *piMessage
	claim agent.Claim
}

type piEvent struct {
	Type    string    `json:"type"`
	ID      string    `json:"id"`
	Message piMessage `json:"message"`
}

type piMessage struct {
	Role    string `json:"role"`
	Content []struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"content"`
	CallID  string `json:"toolCallId"`
	IsError bool   `json:"isError"`
	Stop    string `json:"stopReason"`
	Error   string `json:"errorMessage"`
	Usage   *struct {
		Input      int64 `json:"input"` // without what is cached
		Output     int64 `json:"output"`
		CacheRead  int64 `json:"cacheRead"`
		CacheWrite int64 `json:"cacheWrite"`
	} `json:"usage"`
}

// text is all text of a message.
func (m *piMessage) text() string {
	var parts []string
	for _, c := range m.Content {
		if c.Type == "text" && c.Text != "" {
			parts = append(parts, c.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// Line implements cli.Events.
func (e *piEvents) Line(line []byte) {
	var v piEvent
	if json.Unmarshal(line, &v) != nil && v.Type == "" {
		return
	}
	switch {
	case v.Type == "session" && v.ID != "":
		e.book.Session = v.ID
	case v.Type == "message_end" && v.Message.Role == "assistant":
		e.said(&v.Message)
	case v.Type == "message_end" && v.Message.Role == "toolResult":
		e.book.Result(v.Message.CallID, v.Message.text(), v.Message.IsError)
	}
}

func (e *piEvents) said(m *piMessage) {
	e.count++
	e.last = m
	id := fmt.Sprintf("message %d", e.count)
	for _, c := range m.Content {
		switch c.Type {
		case "text":
			e.book.Say(id, c.Text)
		case "thinking":
			e.book.Think(id, c.Thinking)
		case "toolCall":
			e.book.Call(id, c.ID, c.Name, c.Arguments)
		}
	}
	if u := m.Usage; u != nil && m.Stop != "error" {
		in, cached, out := u.Input+u.CacheRead+u.CacheWrite, u.CacheRead, u.Output
		one := agent.Claim{Input: &in, Cached: &cached, Output: &out}
		e.book.Use(id, one)
		e.claim = sum(e.claim, one)
	}
}

// End implements cli.Events. Its exit code is 0 also when the model failed.
func (e *piEvents) End(x cli.Exit) (agent.Yield, error) {
	m, claim := e.last, e.claim
	e.last, e.claim = nil, agent.Claim{}
	if m == nil {
		return x.Crashed("it ended before the model answered"), nil
	}
	y := agent.Yield{End: agent.Done, Message: m.text(), ExitCode: x.ExitCode, Reason: m.Stop, Claim: &claim}
	switch {
	case m.Stop == "error" && refusal.MatchString(m.Error):
		y.End, y.Reason = agent.Refused, m.Error
	case m.Stop == "error" && blamesModel(m.Error):
		return y, cli.Down(m.Error)
	case m.Stop == "error", x.ExitCode != 0 || x.Signal != 0, m.Stop == "toolUse":
		y = x.Crashed(m.Error)
		y.Claim = &claim
	}
	return y, nil
}
