package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/agents/scaffolds/internal/streamjson"
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
				"rg":   "npm/node_modules/@qwen-code/qwen-code/vendor/ripgrep/" + npmArch + "-linux/rg", // in the package it is not executable
			},
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectAnthropic, model.DialectOpenAI, model.DialectGemini},
		Knobs:     []cli.Knob{cli.Effort, cli.MaxTurns, cli.SystemPrompt, cli.AllowedTools, cli.DeniedTools, cli.MCP, cli.Skills},
		Logs:      []string{"qwen/projects"},
		ModelName: "model",
		Refuse:    refuseQwen,
		Start:     startQwen,
		Events:    func(b *cli.Transcript) cli.Events { return &qwenEvents{streamjson.Reader{Transcript: b, Whole: true}} },
	}
}

// refuseQwen refuses an effort where Qwen Code states it in a way that the model does
// not accept: it has levels for every model of Google, and Gemini 2 takes a number of
// tokens.
func refuseQwen(s *cli.Settings, r agent.CheckRequest) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Models)) {
		if m := r.Models[name]; s.ReasoningEffort != "" && m.Dialect == model.DialectGemini && strings.HasPrefix(m.Name, "gemini-2") {
			out = append(out, fmt.Sprintf("qwen-code cannot set an effort for %s: it would send a level, which only Gemini 3 and later accept: leave out reasoning_effort", m.Name))
		}
	}
	return out
}

func startQwen(r *cli.Run) (cli.Start, error) {
	s := r.Settings
	api := map[model.Dialect][2]string{ // with the word in the names of its variables
		model.DialectOpenAIChat: {"openai", "OPENAI"}, model.DialectOpenAI: {"openai-responses", "OPENAI"},
		model.DialectAnthropic: {"anthropic", "ANTHROPIC"}, model.DialectGemini: {"gemini", "GEMINI"},
	}[r.Model.Dialect]
	start := cli.Start{
		Argv:  []string{cli.Bundle + "/bin/node", cli.Bundle + "/bin/qwen", "--yolo", "--output-format", "stream-json"},
		Stdin: r.Message, Files: r.SkillLinks("qwen/skills"),
		Env: map[string]string{
			"QWEN_HOME": cli.Home + "/qwen", api[1] + "_BASE_URL": r.BaseURL(), api[1] + "_API_KEY": r.Model.Token, api[1] + "_MODEL": r.Model.Name,
			"GOOGLE_GEMINI_BASE_URL": r.URL, "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
		},
	}
	start.Options("--auth-type", api[0], "--model", r.Model.Name, "--resume", r.Session, "--max-session-turns", r.MaxTurns())
	start.Text("qwen/QWEN.md", s.SystemPrompt)
	start.JSON("qwen/settings.json", given(map[string]any{
		"privacy": map[string]any{"usageStatisticsEnabled": false}, "telemetry": map[string]any{"enabled": false},
		"general": map[string]any{"enableAutoUpdate": false},
		// The gateway retries, and knows when to.
		"model": map[string]any{"generationConfig": given(map[string]any{
			"maxRetries": 1, "reasoning": given(map[string]any{"effort": s.ReasoningEffort}),
		})},
		"tools":       given(map[string]any{"core": s.AllowedTools}),
		"permissions": given(map[string]any{"deny": qwenDenied(r)}),
		// Otherwise it asks the model after each turn what to remember.
		"memory":     map[string]any{"enableManagedAutoMemory": false, "enableManagedAutoDream": false},
		"mcpServers": trusted(r.Servers),
	}))
	return start, nil
}

// qwenUnlisted are the tools that its list of allowed ones does not affect.
var qwenUnlisted = []string{
	"agent", "enter_worktree", "exit_worktree", "get_goal", "list_agents", "record_artifact", "report_findings", "send_message", "skill", "task_stop", "update_goal",
}

// qwenDenied returns the tools that the model may not use.
func qwenDenied(r *cli.Run) []string {
	denied := slices.Clone(r.Settings.DeniedTools)
	if len(r.Settings.AllowedTools) == 0 {
		return denied
	}
	denied = append(denied, qwenUnlisted...)
	if len(r.Servers) == 0 {
		denied = append(denied, "tool_search", "tool_call") // servers are reached through these
	}
	return slices.DeleteFunc(denied, func(t string) bool {
		return slices.Contains(r.Settings.AllowedTools, t) && !slices.Contains(r.Settings.DeniedTools, t)
	})
}

// qwenEvents reads stream-json.
type qwenEvents struct{ streamjson.Reader }

// End implements cli.Events. If a limit of the CLI ended the turn, the CLI
// prints no result, and only the exit code shows it.
func (e *qwenEvents) End(x cli.Exit) (agent.Yield, error) {
	end := cli.Ending{Limit: x.ExitCode == 53}
	switch r := e.Last; {
	case r == nil:
		end.Open = noResult
	case r.IsError:
		end.Wrong = cmp.Or(r.Error.Message, unsaid)
		end.Open = noResult // the usage of failed requests is not reported
	default:
		end.Message = r.Text
	}
	return e.Transcript.Judge(x, end)
}
