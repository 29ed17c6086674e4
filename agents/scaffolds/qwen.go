package main

import (
	"encoding/json"
	"regexp"
	"strconv"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

func qwenCode() cli.Scaffold {
	return cli.Scaffold{
		Name: "qwen-code", Version: version, Doc: "Qwen Code, unmodified, inside the sandbox.",
		Recipe: node(bundle.Recipe{
			Version: "0.24.4", NPM: []string{"@qwen-code/qwen-code@{version}"}, Links: map[string]string{
				"qwen": "npm/node_modules/@qwen-code/qwen-code/cli-entry.js",
				"rg":   "npm/node_modules/@qwen-code/qwen-code/vendor/ripgrep/" + npmArch + "-linux/rg", // which is packed without its x bit
			},
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectAnthropic, model.DialectOpenAI, model.DialectGemini},
		Knobs:     []cli.Knob{cli.MaxTurns, cli.SystemPrompt, cli.MCP, cli.Skills},
		Logs:      []string{"qwen/projects"},
		ModelName: "model",
		Start:     startQwen,
		Events:    func(b *cli.Book) cli.Events { return &qwenEvents{book: b} },
	}
}

func startQwen(r *cli.Run) (cli.Start, error) {
	s := r.Settings
	settings := map[string]any{
		"privacy": map[string]any{"usageStatisticsEnabled": false}, "telemetry": map[string]any{"enabled": false},
		"general": map[string]any{"enableAutoUpdate": false},
		// The gateway tries again, and knows when.
		"model": map[string]any{"generationConfig": map[string]any{"maxRetries": 1}},
	}
	if len(r.Servers) > 0 {
		servers := map[string]any{}
		for _, m := range r.Servers {
			switch m.Transport {
			case "stdio":
				servers[m.Name] = map[string]any{"command": m.Command, "args": append([]string{}, m.Args...), "trust": true}
			case "sse":
				servers[m.Name] = map[string]any{"url": m.URL, "headers": m.Headers, "trust": true}
			default:
				servers[m.Name] = map[string]any{"httpUrl": m.URL, "headers": m.Headers, "trust": true}
			}
		}
		settings["mcpServers"] = servers
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		return cli.Start{}, err
	}
	kind, word, base := "openai", "OPENAI", r.URL+"/v1"
	switch r.Model.Dialect {
	case model.DialectAnthropic:
		kind, word, base = "anthropic", "ANTHROPIC", r.URL
	case model.DialectOpenAI:
		kind = "openai-responses"
	case model.DialectGemini:
		kind, word, base = "gemini", "GEMINI", r.URL
	default:
	}
	argv := []string{cli.Bundle + "/bin/node", cli.Bundle + "/bin/qwen", "--yolo", "--output-format", "stream-json", "--auth-type", kind, "--model", r.Model.Name}
	if r.Session != "" {
		argv = append(argv, "--resume", r.Session)
	}
	if s.MaxTurns > 0 {
		argv = append(argv, "--max-session-turns", strconv.FormatInt(s.MaxTurns, 10))
	}
	files := append(r.SkillLinks("qwen/skills"), cli.File{Path: "qwen/settings.json", Data: string(raw)})
	if s.SystemPrompt != "" {
		files = append(files, cli.File{Path: "qwen/QWEN.md", Data: s.SystemPrompt})
	}
	return cli.Start{
		Argv: argv, Stdin: r.Message, Files: files,
		Env: map[string]string{
			"QWEN_HOME": cli.Home + "/qwen", word + "_BASE_URL": base, word + "_API_KEY": r.Model.Token, word + "_MODEL": r.Model.Name,
			"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
		},
	}, nil
}

// qwenEvents reads stream-json, which is that of Claude Code with small changes.
type qwenEvents struct {
	book  *cli.Book
	said  string
	last  *qwenEvent // the result
	claim agent.Claim
}

type qwenEvent struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Session string `json:"session_id"`
	Parent  string `json:"parent_tool_use_id"`
	Message struct {
		ID      string          `json:"id"`
		Content json.RawMessage `json:"content"`
		Stop    string          `json:"stop_reason"`
		Usage   *struct {
			Input  int64 `json:"input_tokens"`
			Cached int64 `json:"cache_read_input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"usage"`
	} `json:"message"`
	IsError bool   `json:"is_error"`
	Result  string `json:"result"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Line implements cli.Events. Thoughts, text and calls of one answer come as
// messages of their own; a result ends it.
func (e *qwenEvents) Line(line []byte) {
	var v qwenEvent
	if json.Unmarshal(line, &v) != nil && v.Type == "" {
		return
	}
	book := e.book.In(v.Parent)
	switch v.Type {
	case "system":
		if v.Subtype == "init" && v.Session != "" {
			e.book.Session = v.Session
		}
	case "assistant":
		for _, b := range blocks(v.Message.Content) {
			if b.Type == "text" && v.Parent == "" {
				e.said = b.Text
			}
			b.record(book, "")
		}
		if u := v.Message.Usage; u != nil && u.Input+u.Output > 0 {
			in, cached, out := u.Input, u.Cached, u.Output
			e.claim = sum(e.claim, agent.Claim{Input: &in, Cached: &cached, Output: &out})
		}
	case "user":
		for _, b := range blocks(v.Message.Content) {
			if b.Type == "tool_result" {
				book.Result(b.CallID, textOf(b.Content), b.IsError)
			}
		}
	case "result":
		e.last = &v
	}
}

// emptyAnswer are its words for an answer without text or calls.
var emptyAnswer = regexp.MustCompile(`(?i)empty response`)

// End implements cli.Events. Its exit code says when a limit of its own ended
// it, which prints no result.
func (e *qwenEvents) End(x cli.Exit) (agent.Yield, error) {
	was := *e
	e.said, e.last, e.claim = "", nil, agent.Claim{}
	y := agent.Yield{End: agent.Done, Message: was.said, ExitCode: x.ExitCode}
	if was.claim != (agent.Claim{}) {
		y.Claim = &was.claim
	}
	r := was.last
	switch {
	case x.ExitCode == 53 && x.Signal == 0:
		y.End, y.Reason = agent.MaxSteps, "max_turns is reached"
	case r == nil:
		y = x.Crashed("it ended without a result")
	case r.IsError && refusal.MatchString(r.Error.Message):
		y.End, y.Reason = agent.Refused, r.Error.Message
	case r.IsError && emptyAnswer.MatchString(r.Error.Message): // of a model that refuses, for one
		y = x.Crashed(r.Error.Message)
	case r.IsError && blamesModel(r.Error.Message):
		return y, cli.Down(r.Error.Message)
	case r.IsError || x.ExitCode != 0 || x.Signal != 0:
		y = x.Crashed(r.Error.Message)
	default:
		y.Message = r.Result
	}
	return y, nil
}
