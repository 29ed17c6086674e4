package main

import (
	_ "embed" // the driver
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

//go:embed nanobot.py
var nanobotDriver string

func nanobot() cli.Scaffold {
	return cli.Scaffold{
		Name: "nanobot", Version: version,
		Doc: "nanobot as it is on PyPI, inside the sandbox. A short driver prints what it does as it goes on.",
		Recipe: python(bundle.Recipe{
			Version: "0.3.5", PyPI: []string{"nanobot-ai=={version}"},
			Drop: []string{"python/nanobot/{tui,web}"}, // its own interfaces
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.MaxTurns, cli.SystemPrompt, cli.MCP, cli.Skills},
		Logs:      []string{"nanobot/sessions"},
		ModelName: "model",
		Start:     startNanobot,
		Events:    func(b *cli.Book) cli.Events { return &nanobotEvents{book: b} },
	}
}

func startNanobot(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/nanobot"
	s := r.Settings
	name, provider := "custom", map[string]any{"apiKey": "${BERTH_TOKEN}", "apiBase": r.URL + "/v1"}
	switch r.Model.Dialect {
	case model.DialectOpenAI:
		name, provider["apiType"] = "openai", "responses"
	case model.DialectAnthropic:
		name, provider["apiBase"] = "anthropic", r.URL
	default:
	}
	defaults := map[string]any{"model": r.Model.Name, "provider": name, "workspace": home + "/workspace"}
	if s.ReasoningEffort != "" {
		defaults["reasoningEffort"] = s.ReasoningEffort
	}
	if s.MaxTurns > 0 {
		defaults["maxToolIterations"] = s.MaxTurns
	}
	servers := map[string]any{}
	for _, m := range r.Servers {
		switch m.Transport {
		case "stdio":
			servers[m.Name] = map[string]any{"type": "stdio", "command": m.Command, "args": append([]string{}, m.Args...)}
		case "sse":
			servers[m.Name] = map[string]any{"type": "sse", "url": m.URL, "headers": m.Headers}
		default:
			servers[m.Name] = map[string]any{"type": "streamableHttp", "url": m.URL, "headers": m.Headers}
		}
	}
	config, err := json.Marshal(map[string]any{
		"agents": map[string]any{"defaults": defaults}, "providers": map[string]any{name: provider}, "tools": map[string]any{"mcpServers": servers},
	})
	if err != nil {
		return cli.Start{}, err
	}
	files := append(r.SkillLinks("nanobot/workspace/skills"), cli.File{Path: "nanobot/drive.py", Data: nanobotDriver}, cli.File{Path: "nanobot/config.json", Data: string(config)})
	if s.SystemPrompt != "" {
		files = append(files, cli.File{Path: "nanobot/workspace/USER.md", Data: s.SystemPrompt + "\n"})
	}
	return cli.Start{
		Argv:  []string{cli.Bundle + "/bin/python", "-I", home + "/drive.py", cli.Bundle, home, r.Workdir, "websocket:berth"},
		Env:   map[string]string{"BERTH_TOKEN": r.Model.Token},
		Files: files, Stdin: r.Message,
	}, nil
}

// nanobotEvents reads what the driver prints.
type nanobotEvents struct {
	book  *cli.Book
	count int
	reply string        // how the newest message of the model ended
	wrong *nanobotEvent // that the newest request failed
	last  *nanobotEvent // the end
	claim agent.Claim
}

type nanobotEvent struct {
	Type     string `json:"type"`
	ID       string `json:"id"`
	Text     string `json:"text"`
	Thinking string `json:"thinking"`
	Calls    []struct {
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"calls"`
	Usage *struct {
		Input  int64  `json:"input"`
		Cached *int64 `json:"cached"`
		Output int64  `json:"output"`
	} `json:"usage"`
	Failed bool   `json:"failed"`
	Reason string `json:"reason"`
	Error  string `json:"error"`
	Status int    `json:"status"` // of a request that failed, if there was an answer
	Kind   string `json:"kind"`   // why there was none
}

// Line implements cli.Events.
func (e *nanobotEvents) Line(line []byte) {
	var v nanobotEvent
	if json.Unmarshal(line, &v) != nil && v.Type == "" {
		return
	}
	switch v.Type {
	case "session":
		e.book.Session = v.ID
	case "message":
		e.count++
		e.reply, e.wrong = v.Reason, nil
		id := fmt.Sprintf("message %d", e.count)
		e.book.Think(id, v.Thinking)
		e.book.Say(id, v.Text)
		for _, c := range v.Calls {
			e.book.Call(id, c.ID, c.Name, c.Arguments)
		}
		if u := v.Usage; u != nil {
			one := agent.Claim{Input: &u.Input, Cached: u.Cached, Output: &u.Output}
			e.book.Use(id, one)
			e.claim = sum(e.claim, one)
		}
	case "result":
		e.book.Result(v.ID, v.Text, v.Failed)
	case "trouble":
		e.wrong = &v
	case "end":
		e.last = &v
	}
}

// End implements cli.Events.
func (e *nanobotEvents) End(x cli.Exit) (agent.Yield, error) {
	v, reply, wrong, claim := e.last, e.reply, e.wrong, e.claim
	e.last, e.reply, e.wrong, e.claim = nil, "", nil, agent.Claim{}
	if v == nil {
		return x.Crashed("it ended without saying why"), nil
	}
	y := agent.Yield{End: agent.Done, Message: strings.TrimSpace(v.Text), ExitCode: x.ExitCode, Reason: v.Reason, Claim: &claim}
	why := v.Error
	if why == "" && v.Reason == "error" {
		why = v.Text
	}
	switch {
	case v.Reason == "max_iterations":
		y.End = agent.MaxSteps
	case reply == "refusal" || reply == "content_filter":
		y.End, y.Reason = agent.Refused, reply
	case wrong != nil && (wrong.Status != 0 || wrong.Kind != "") && cli.Blames(wrong.Status), why != "" && blamesModel(why):
		return y, cli.Down(why)
	case why != "" || x.ExitCode != 0 || x.Signal != 0:
		y = x.Crashed(why)
		y.Claim = &claim
	}
	return y, nil
}
