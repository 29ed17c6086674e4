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

func openCode() cli.Scaffold {
	return cli.Scaffold{
		Name: "opencode", Version: version, Doc: "OpenCode, unmodified, inside the sandbox.",
		Recipe: bundle.Recipe{
			Version: "1.18.33", NPM: []string{"opencode-linux-" + npmArch + "@{version}"}, Debian: []string{"libc6", "libstdc++6", "libgcc-s1", "bash-static"},
			Links: map[string]string{"opencode": "npm/node_modules/opencode-linux-" + npmArch + "/bin/opencode", "bash": "usr/bin/bash-static"},
		},
		Dialects:  []model.Dialect{model.DialectOpenAIChat},
		Knobs:     []cli.Knob{cli.SystemPrompt, cli.DeniedTools, cli.MaxTurns, cli.MCP, cli.Skills},
		Logs:      []string{"opencode/data/opencode/log"},
		ModelName: "model",
		Start:     startOpenCode,
		Events:    func(b *cli.Book) cli.Events { return &openCodeEvents{book: b} },
	}
}

func startOpenCode(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/opencode"
	s := r.Settings
	files := r.SkillLinks("opencode/config/opencode/skills")
	c := map[string]any{
		"autoupdate": false, "share": "disabled", "permission": "allow", "model": "berth/" + r.Model.Name, "small_model": "berth/" + r.Model.Name,
		"provider": map[string]any{"berth": map[string]any{
			"npm": "@ai-sdk/openai-compatible", "options": map[string]any{"baseURL": r.URL + "/v1", "apiKey": "{env:BERTH_MODEL_TOKEN}"},
			"models": map[string]any{r.Model.Name: map[string]any{"limit": map[string]int{"context": 200000, "output": 32000}}},
		}},
	}
	if s.SystemPrompt != "" {
		files = append(files, cli.File{Path: "opencode/system.md", Data: s.SystemPrompt})
		c["instructions"] = []string{home + "/system.md"}
	}
	if s.MaxTurns > 0 {
		c["agent"] = map[string]any{"build": map[string]any{"steps": s.MaxTurns}}
	}
	if len(s.DeniedTools) > 0 {
		tools := map[string]bool{}
		for _, t := range s.DeniedTools {
			tools[t] = false
		}
		c["tools"] = tools
	}
	if len(r.Servers) > 0 {
		servers := map[string]any{}
		for _, m := range r.Servers {
			if m.Transport == "stdio" {
				servers[m.Name] = map[string]any{"type": "local", "command": append([]string{m.Command}, m.Args...), "enabled": true}
			} else {
				servers[m.Name] = map[string]any{"type": "remote", "url": m.URL, "headers": m.Headers, "enabled": true}
			}
		}
		c["mcp"] = servers
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return cli.Start{}, err
	}
	argv := []string{cli.Bundle + "/bin/opencode", "run", "--format", "json", "--thinking", "--title", "berth"}
	if r.Session != "" {
		argv = append(argv, "--session", r.Session)
	}
	env := map[string]string{
		"OPENCODE_CONFIG_CONTENT": string(raw), "BERTH_MODEL_TOKEN": r.Model.Token, "XDG_CONFIG_HOME": home + "/config", "XDG_DATA_HOME": home + "/data",
		"XDG_CACHE_HOME": home + "/cache", "XDG_STATE_HOME": home + "/state", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
	}
	if r.Shell == cli.Bash {
		env["SHELL"] = r.Shell
	}
	return cli.Start{Argv: argv, Env: env, Files: files, Stdin: r.Message}, nil
}

// openCodeEvents reads what `opencode run --format json` prints.
type openCodeEvents struct {
	book  *cli.Book
	said  string
	ended string // why the last step ended
	wrong *openCodeError
	claim agent.Claim
}

type openCodeError struct {
	Name string `json:"name"`
	Data struct {
		Message string `json:"message"`
		Status  *int   `json:"statusCode"`
	} `json:"data"`
}

type openCodeEvent struct {
	Type    string         `json:"type"`
	Session string         `json:"sessionID"`
	Error   *openCodeError `json:"error"`
	Part    struct {
		Message string `json:"messageID"`
		Text    string `json:"text"`
		Tool    string `json:"tool"`
		CallID  string `json:"callID"`
		Reason  string `json:"reason"`
		State   struct {
			Status   string          `json:"status"`
			Input    json.RawMessage `json:"input"`
			Output   string          `json:"output"`
			Error    string          `json:"error"`
			Metadata struct {
				Exit *int `json:"exit"`
			} `json:"metadata"`
		} `json:"state"`
		Tokens *struct {
			Input     int64 `json:"input"` // without what is cached
			Output    int64 `json:"output"`
			Reasoning int64 `json:"reasoning"`
			Cache     struct {
				Read  int64 `json:"read"`
				Write int64 `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
	} `json:"part"`
}

// Line implements cli.Events. A call is told when it has its result; a step ends
// when all of its calls have theirs.
func (e *openCodeEvents) Line(line []byte) {
	var v openCodeEvent
	if json.Unmarshal(line, &v) != nil && v.Type == "" {
		return
	}
	if v.Session != "" {
		e.book.Session = v.Session
	}
	p := &v.Part
	switch v.Type {
	case "step_start":
		e.book.Next()
		e.ended = ""
	case "text":
		e.said = p.Text
		e.book.Say("", p.Text)
	case "reasoning":
		e.book.Think("", p.Text)
	case "tool_use":
		out := p.State.Output
		if p.State.Error != "" {
			out = p.State.Error
		}
		if x := p.State.Metadata.Exit; x != nil && *x != 0 {
			out = fmt.Sprintf("%s\n[exit code %d]", strings.TrimSuffix(out, "\n"), *x)
		}
		e.book.Call("", p.CallID, p.Tool, p.State.Input)
		e.book.Result(p.CallID, out, p.State.Status == "error")
	case "step_finish":
		e.ended = p.Reason
		if t := p.Tokens; t != nil {
			in, cached, out := t.Input+t.Cache.Read+t.Cache.Write, t.Cache.Read, t.Output+t.Reasoning
			e.claim = sum(e.claim, agent.Claim{Input: &in, Cached: &cached, Output: &out})
		}
		e.book.Next()
	case "error":
		e.wrong = v.Error
	}
}

// End implements cli.Events.
func (e *openCodeEvents) End(x cli.Exit) (agent.Yield, error) {
	was := *e
	e.said, e.ended, e.wrong, e.claim = "", "", nil, agent.Claim{}
	y := agent.Yield{End: agent.Done, Message: was.said, ExitCode: x.ExitCode, Reason: was.ended}
	if was.claim != (agent.Claim{}) {
		y.Claim = &was.claim
	}
	switch w := was.wrong; {
	case w != nil:
		why := w.Name + ": " + w.Data.Message
		if w.Name == "ContentFilterError" {
			y.End, y.Reason = agent.Refused, why
			return y, nil
		}
		if w.Data.Status != nil && cli.Blames(*w.Data.Status) || w.Data.Status == nil && blamesModel(why) {
			return y, cli.Down(why)
		}
		y = x.Crashed(why)
	case x.ExitCode != 0 || x.Signal != 0:
		y = x.Crashed("")
	case was.ended == "" || was.ended == "tool-calls":
		y = x.Crashed("it ended in the middle of a turn") // a permission that nobody gave, for one
	}
	return y, nil
}
