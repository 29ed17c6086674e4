package main

import (
	"cmp"
	"maps"
	"strings"

	"github.com/berth-eval/berth/agents/scaffolds/internal/streamjson"
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
		Prior:     true,
		Start:     startClaudeCode,
		Events:    func(b *cli.Transcript) cli.Events { return &claudeEvents{streamjson.Reader{Transcript: b}} },
	}
}

func startClaudeCode(r *cli.Run) (cli.Start, error) {
	s := r.Settings
	start := cli.Start{
		Argv:  []string{cli.Bundle + "/bin/claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"},
		Stdin: r.Message, Files: r.SkillLinks("claude/skills"),
		Env: map[string]string{
			"CLAUDE_CONFIG_DIR": cli.Home + "/claude", "ANTHROPIC_BASE_URL": r.URL, "ANTHROPIC_API_KEY": r.Model.Token,
			"ANTHROPIC_DEFAULT_HAIKU_MODEL": r.Model.Name, "CLAUDE_CODE_SUBAGENT_MODEL": r.Model.Name, // the same model for every purpose
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1",
			"ANTHROPIC_AUTH_TOKEN": "", "CLAUDE_CODE_OAUTH_TOKEN": "", "CLAUDE_CODE_USE_BEDROCK": "", "CLAUDE_CODE_USE_VERTEX": "", "ANTHROPIC_CUSTOM_HEADERS": "", // clears those of the image
			"CLAUDE_CODE_DISABLE_LEGACY_MODEL_REMAP": "1", // Claude Opus 4.1 is asked for as such, and not as a newer model

			"IS_SANDBOX":              "1",       // allows running as root
			"CLAUDE_CODE_MAX_RETRIES": "2",       // the gateway retries, and knows when to
			"API_TIMEOUT_MS":          "3600000", // the core enforces the deadline of the turn
		},
	}
	session := r.Session
	if r.Prior != nil {
		session = claudePrior(r, &start)
	}
	start.Options(
		"--model", r.Model.Name, "--resume", session, "--effort", s.ReasoningEffort, "--max-turns", r.MaxTurns(),
		"--append-system-prompt-file", start.Text("claude/system.md", s.SystemPrompt), // an argument may have at most 128 KiB
		"--tools", strings.Join(s.AllowedTools, ","), "--disallowedTools", strings.Join(s.DeniedTools, ","),
	)
	if len(r.Servers) > 0 {
		servers := start.JSON("claude/mcp.json", map[string]any{"mcpServers": mcpServers(r.Servers, "http")})
		start.Argv = append(start.Argv, "--strict-mcp-config", "--mcp-config", servers)
	}
	if r.Shell != "" {
		start.Env["SHELL"] = r.Shell // it needs bash or zsh, and looks for it in this variable
	}
	// Variables in the settings of the working folder override the environment.
	// These settings override both.
	env := map[string]string{"NO_PROXY": r.Direct, "no_proxy": r.Direct}
	maps.Copy(env, start.Env)
	maps.Copy(env, s.Env)
	start.Options("--settings", start.JSON("claude/settings.berth.json", map[string]any{"env": env}))
	return start, nil
}

// claudeEvents reads stream-json.
type claudeEvents struct{ streamjson.Reader }

// End implements cli.Events.
func (e *claudeEvents) End(x cli.Exit) (agent.Yield, error) {
	r := e.Last
	if r == nil {
		return e.Transcript.Judge(x, cli.Ending{Open: noResult})
	}
	var in, cached, out int64
	for _, m := range r.Models {
		in, cached, out = in+m.Input+m.CacheRead+m.CacheWrite, cached+m.CacheRead, out+m.Output
	}
	used := cli.Tokens(in, cached, out)
	used.Cost = r.Cost
	e.Transcript.UsedSoFar(used)
	end := cli.Ending{Message: r.Text, Reason: r.Terminal, Limit: r.Subtype == "error_max_turns", Status: r.Status}
	if r.Stop == "refusal" {
		end.Refused = "the model refused"
	}
	if r.Terminal == "api_error" && r.Status == nil {
		end.Status = new(int) // there was no answer
	}
	if r.IsError || end.Status != nil {
		end.Wrong = cmp.Or(strings.Join(r.Errors, "; "), r.Text, unsaid)
	}
	return e.Transcript.Judge(x, end)
}
