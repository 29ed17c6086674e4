package main

import (
	"crypto/rand"
	_ "embed" // the driver
	"encoding/json"
	"fmt"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

//go:embed openclaw.mjs
var openClawDriver string

func openClaw() cli.Scaffold {
	return cli.Scaffold{
		Name: "openclaw", Version: version,
		Doc: "OpenClaw, unmodified, inside the sandbox. A short driver prints its transcript as it is stored.",
		Recipe: node(bundle.Recipe{
			Version: "2026.9.6", NPM: []string{"openclaw@{version}"}, Links: map[string]string{"openclaw": "npm/node_modules/openclaw/openclaw.mjs"},
			// With this mark it wants to clean up after an older version first.
			Drop: []string{"npm/node_modules/openclaw/.openclaw-lifecycle-pending"},
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.MCP},
		Efforts:   []string{"off", "minimal", "low", "medium", "high"},
		Logs:      []string{"openclaw/state/agents/main/agent"},
		ModelName: "model",
		Start:     startOpenClaw,
		Events:    func(b *cli.Book) cli.Events { return &openClawEvents{talk: piEvents{book: b}} },
	}
}

func startOpenClaw(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/openclaw"
	session := r.Session
	if session == "" {
		session = uuid()
	}
	config, err := openClawConfig(r)
	if err != nil {
		return cli.Start{}, err
	}
	message := fmt.Sprintf("openclaw/message-%d.md", r.Turn)
	argv := []string{
		cli.Bundle + "/bin/node", home + "/drive.mjs", cli.Bundle + "/npm/node_modules/openclaw/openclaw.mjs", home + "/state", session,
		"--message-file", cli.Home + "/" + message, "--timeout", "604800", // the deadline of the turn is the core's
	}
	if e := r.Settings.ReasoningEffort; e != "" {
		argv = append(argv, "--thinking", e)
	}
	env := map[string]string{
		"OPENCLAW_STATE_DIR": home + "/state", "OPENCLAW_CONFIG_PATH": home + "/openclaw.json", "OPENCLAW_HOME": home, "OPENCLAW_NO_RESPAWN": "1",
		"OPENCLAW_NO_AUTO_UPDATE": "1", "OPENCLAW_OFFLINE": "1", "OPENCLAW_TELEMETRY": "0", "NODE_NO_WARNINGS": "1", "BERTH_MODEL_TOKEN": r.Model.Token,
	}
	if r.Shell != "" {
		env["SHELL"] = r.Shell
	}
	return cli.Start{
		Argv: argv, Env: env,
		Files: []cli.File{
			{Path: "openclaw/drive.mjs", Data: openClawDriver},
			{Path: "openclaw/openclaw.json", Data: config},
			{Path: message, Data: r.Message},
			{Path: "openclaw/state/.keep"}, // it must be there
		},
	}, nil
}

func openClawConfig(r *cli.Run) (string, error) {
	api, base := "openai-completions", r.URL+"/v1"
	switch r.Model.Dialect {
	case model.DialectOpenAI:
		api = "openai-responses"
	case model.DialectAnthropic:
		api, base = "anthropic-messages", r.URL
	default:
	}
	e := r.Settings.ReasoningEffort
	c := map[string]any{
		"agents": map[string]any{"defaults": map[string]any{
			"model": map[string]any{"primary": "berth/" + r.Model.Name}, "workspace": r.Workdir, "skipBootstrap": true,
		}},
		"tools": map[string]any{"profile": "coding", "exec": map[string]any{"host": "gateway", "security": "full", "ask": "off"}},
		"models": map[string]any{"mode": "merge", "providers": map[string]any{"berth": map[string]any{
			"baseUrl": base, "apiKey": "${BERTH_MODEL_TOKEN}", "api": api,
			"models": []any{map[string]any{
				"id": r.Model.Name, "name": r.Model.Name, "reasoning": e != "" && e != "off", "input": []string{"text", "image"},
				"cost": map[string]int{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": 200000, "maxTokens": 32000,
				"compat": map[string]bool{"supportsReasoningEffort": true},
			}},
		}}},
		"update": map[string]any{"checkOnStart": false},
	}
	if len(r.Servers) > 0 {
		c["mcp"] = map[string]any{"servers": mcpServers(r.Servers, "streamable-http")}
	}
	raw, err := json.Marshal(c)
	return string(raw), err
}

// uuid is a random one, of version 4.
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// openClawEvents reads its transcript, whose messages are those of pi.
type openClawEvents struct {
	talk   piEvents
	result *openClawResult
}

// openClawResult is what it prints at the end.
type openClawResult struct {
	Type     string `json:"type"`
	Payloads []struct {
		Text string `json:"text"`
	} `json:"payloads"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
	Meta struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"meta"`
	Text string `json:"text"`
}

// Line implements cli.Events.
func (e *openClawEvents) Line(line []byte) {
	var v piEvent
	if json.Unmarshal(line, &v) != nil && v.Type == "" {
		return
	}
	switch {
	case v.Type == "session" && v.ID != "":
		e.talk.book.Session = v.ID
	case v.Type == "message" && v.Message.Role == "assistant":
		e.talk.said(&v.Message)
	case v.Type == "message" && v.Message.Role == "toolResult":
		e.talk.book.Result(v.Message.CallID, v.Message.text(), v.Message.IsError)
	case v.Type == "result":
		r := &openClawResult{}
		if json.Unmarshal(line, r) == nil {
			e.result = r
		}
	}
}

// End implements cli.Events.
func (e *openClawEvents) End(x cli.Exit) (agent.Yield, error) {
	r := e.result
	e.result = nil
	why := ""
	if r != nil {
		for _, s := range []string{r.Error.Message, r.Meta.Error.Message, r.Text} {
			if why == "" {
				why = s
			}
		}
	}
	failed := x.ExitCode != 0 || x.Signal != 0 || why != ""
	if m := e.talk.last; failed && (m == nil || m.Stop != "error") {
		e.talk.last, e.talk.claim = nil, agent.Claim{}
		if x.Signal == 0 && blamesModel(why+"\n"+x.Errors) {
			return agent.Yield{End: agent.Crashed}, cli.Down(why + "\n" + x.Errors)
		}
		return x.Crashed(why), nil
	}
	return e.talk.End(x)
}
