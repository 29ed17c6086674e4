package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.SystemPrompt, cli.AllowedTools, cli.DeniedTools, cli.MaxTurns, cli.MCP, cli.Skills},
		Logs:      []string{"opencode/data/opencode/log"},
		ModelName: "model",
		Start:     startOpenCode,
		Events: func(b *cli.Transcript) cli.Events {
			b.Hold()
			return &openCodeEvents{b, cli.Ending{Open: midway}}
		},
	}
}

func startOpenCode(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/opencode"
	s := r.Settings
	start := cli.Start{
		Argv:  []string{cli.Bundle + "/bin/opencode", "run", "--format", "json", "--thinking", "--title", "berth"},
		Stdin: r.Message, Files: r.SkillLinks("opencode/config/opencode/skills"),
		Env: map[string]string{
			"BERTH_MODEL_TOKEN": r.Model.Token, "XDG_CONFIG_HOME": home + "/config", "XDG_DATA_HOME": home + "/data", "XDG_CACHE_HOME": home + "/cache",
			"XDG_STATE_HOME": home + "/state", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
		},
	}
	start.Options("--session", r.Session)
	// It installs this package into each configuration folder, for plugins in
	// that folder, unless the package seems to be installed already.
	const types = "@opencode-ai/plugin"
	start.Files = append(start.Files, cli.File{Path: "opencode/config/opencode/node_modules/.keep"})
	start.JSON("opencode/config/opencode/package-lock.json", map[string]any{"packages": map[string]any{"": map[string]any{"dependencies": map[string]string{types: "*"}}}})
	permission := openCodeRules(r)
	servers := map[string]any{}
	for _, m := range r.Servers {
		servers[m.Name] = map[string]any{"type": "remote", "url": m.URL, "headers": m.Headers, "enabled": true}
		if m.Transport == "stdio" {
			servers[m.Name] = map[string]any{"type": "local", "command": append([]string{m.Command}, m.Args...), "enabled": true}
		}
	}
	library := map[model.Dialect]string{
		model.DialectOpenAIChat: "@ai-sdk/openai-compatible", model.DialectOpenAI: "@ai-sdk/openai", model.DialectAnthropic: "@ai-sdk/anthropic",
	}[r.Model.Dialect]
	effort := given(map[string]any{"reasoningEffort": s.ReasoningEffort})
	if len(effort) > 0 && r.Model.Dialect == model.DialectAnthropic {
		effort = map[string]any{"effort": s.ReasoningEffort, "thinking": map[string]string{"type": "adaptive"}}
	}
	config := map[string]any{
		"autoupdate": false, "share": "disabled", "permission": permission, "model": "berth/" + r.Model.Name, "small_model": "berth/" + r.Model.Name,
		"provider": map[string]any{"berth": map[string]any{
			"npm": library, "options": map[string]any{"baseURL": r.URL + "/v1", "apiKey": "{env:BERTH_MODEL_TOKEN}"},
			"models": map[string]any{r.Model.Name: map[string]any{"limit": map[string]int{"context": 200000, "output": 32000}, "reasoning": len(effort) > 0, "options": effort}},
		}},
	}
	if system := start.Text("opencode/system.md", s.SystemPrompt); system != "" {
		config["instructions"] = []string{system}
	}
	maps.Copy(config, given(map[string]any{"mcp": servers}))
	if s.MaxTurns > 0 {
		config["agent"] = map[string]any{"build": map[string]any{"steps": s.MaxTurns}}
	}
	start.Env["OPENCODE_CONFIG_CONTENT"] = start.Marshal(config)
	if r.Shell == cli.Bash {
		start.Env["SHELL"] = r.Shell
	}
	return start, nil
}

// openCodeRules returns what the model may use. The last rule that matches
// counts, and "*" sorts first. A denied tool is not offered.
func openCodeRules(r *cli.Run) map[string]string {
	rules := map[string]string{"*": "allow"}
	if len(r.Settings.AllowedTools) > 0 {
		rules = map[string]string{"*": "deny", "external_directory": "allow", "doom_loop": "allow"} // the last two are not tools
		for _, m := range r.Servers {
			rules[m.Name+"_*"] = "allow" // tools of servers
		}
	}
	for word, tools := range map[string][]string{"allow": r.Settings.AllowedTools, "deny": r.Settings.DeniedTools} {
		for _, t := range tools {
			if slices.Contains([]string{"write", "patch", "apply_patch"}, t) {
				t = "edit" // one rule covers all tools that change files
			}
			if rules[t] != "deny" {
				rules[t] = word
			}
		}
	}
	return rules
}

// openCodeEvents reads the output of `opencode run --format json`.
type openCodeEvents struct {
	book *cli.Transcript
	end  cli.Ending
}

type openCodeEvent struct {
	Type    string `json:"type"`
	Session string `json:"sessionID"`
	Error   struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
			Status  *int   `json:"statusCode"`
		} `json:"data"`
	} `json:"error"`
	Part struct {
		Text   string `json:"text"`
		Tool   string `json:"tool"`
		CallID string `json:"callID"`
		Reason string `json:"reason"`
		State  struct {
			Status   string          `json:"status"`
			Input    json.RawMessage `json:"input"`
			Output   string          `json:"output"`
			Error    string          `json:"error"`
			Metadata struct {
				Exit *int `json:"exit"`
			} `json:"metadata"`
		} `json:"state"`
		Tokens *struct {
			Input     int64 `json:"input"` // without cached ones
			Output    int64 `json:"output"`
			Reasoning int64 `json:"reasoning"`
			Cache     struct {
				Read  int64 `json:"read"`
				Write int64 `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
	} `json:"part"`
}

// Line implements cli.Events. A call is reported when it has its result, and the
// usage of a step after all of its calls.
func (e *openCodeEvents) Line(line []byte) {
	var v openCodeEvent
	if !cli.Parse(line, &v) {
		return
	}
	if v.Session != "" {
		e.book.Session = v.Session
	}
	p := &v.Part
	switch v.Type {
	case "step_start":
		e.book.Next()
		e.end.Open = midway
	case "text":
		e.book.Say("", p.Text)
	case "reasoning":
		e.book.Think("", p.Text)
	case "tool_use":
		out := cmp.Or(p.State.Error, p.State.Output)
		if x := p.State.Metadata.Exit; x != nil && *x != 0 {
			out = fmt.Sprintf("%s\n[exit code %d]", strings.TrimSuffix(out, "\n"), *x)
		}
		e.book.Call("", p.CallID, p.Tool, p.State.Input)
		e.book.Result(p.CallID, out, p.State.Status == "error")
	case "step_finish":
		if e.end.Reason = p.Reason; p.Reason != "" && p.Reason != "tool-calls" {
			e.end.Open = "" // otherwise a permission was refused, for example
		}
		if t := p.Tokens; t != nil {
			used := cli.Tokens(t.Input+t.Cache.Read+t.Cache.Write, t.Cache.Read, t.Output+t.Reasoning)
			e.book.Use("", used)
			e.book.Used(used)
		}
		e.book.Stopped(p.Reason)
		e.book.Next()
	case "error":
		e.end.Wrong, e.end.Status = v.Error.Name+": "+v.Error.Data.Message, v.Error.Data.Status
		if v.Error.Name == "ContentFilterError" {
			e.end.Refused = e.end.Wrong
		}
	}
}

// End implements cli.Events.
func (e *openCodeEvents) End(x cli.Exit) (agent.Yield, error) { return e.book.Judge(x, e.end) }
