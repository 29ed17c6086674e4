package main

import (
	_ "embed" // the driver
	"fmt"
	"maps"
	"slices"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

//go:embed openhands.py
var openHandsDriver string

// openHandsTools are the tools of OpenHands that can be left out. Those for
// thinking and for finishing are always there.
var openHandsTools = []string{"terminal", "file_editor", "task_tracker", "task_tool_set"}

func openHands() cli.Scaffold {
	return cli.Scaffold{
		Name: "openhands", Version: version,
		Doc: "OpenHands, the agent of its command line as it is on PyPI, inside the sandbox. A short driver prints what it does as it works.",
		Recipe: python(bundle.Recipe{
			Version: "1.16.0",
			// It does not pin the version of its server, and the newest server
			// does not fit. Nor does the newest browser-use: pip then tries its
			// versions for half an hour.
			PyPI:    []string{"openhands=={version}", "openhands-agent-server==1.21.0", "browser-use==0.11.13"},
			Sources: []string{"func-timeout==4.3.5"}, BuildWith: []string{"setuptools==80.9.0"},
			AnyPython: []string{"openhands"}, // it declares only 3.12, its libraries 3.12 and later
			Drop:      []string{"python/googleapiclient/discovery_cache/documents", "python/litellm/proxy/_experimental/out"},
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.MaxTurns, cli.SystemPrompt, cli.AllowedTools, cli.DeniedTools, cli.MCP, cli.Skills},
		Efforts:   []string{"none", "low", "medium", "high", "xhigh"},
		Logs:      []string{"openhands/conversations"},
		ModelName: "model",
		NoArgs:    true,
		Refuse:    refuseOpenHands,
		Start:     startOpenHands,
		Events:    cli.Driver,
	}
}

func refuseOpenHands(s *cli.Settings, _ agent.CheckRequest) (out []string) {
	for _, t := range slices.Concat(s.AllowedTools, s.DeniedTools) {
		if !slices.Contains(openHandsTools, t) {
			out = append(out, fmt.Sprintf("openhands has no tool %q that could be left out: it has %q", t, openHandsTools))
		}
	}
	return out
}

func startOpenHands(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/openhands"
	s, provider := r.Settings, "openai"
	if r.Model.Dialect == model.DialectAnthropic {
		provider = "anthropic"
	}
	without := slices.DeleteFunc(slices.Clone(openHandsTools), func(t string) bool {
		return !slices.Contains(s.DeniedTools, t) && (len(s.AllowedTools) == 0 || slices.Contains(s.AllowedTools, t))
	})
	start := cli.Start{
		Argv:  []string{cli.Bundle + "/bin/python", "-I", "-W", "ignore", home + "/drive.py", cli.Bundle, home, r.Session},
		Stdin: r.Message, Files: r.SkillLinks("openhands/skills"), Env: map[string]string{"BERTH_TOKEN": r.Model.Token},
	}
	start.Text("openhands/drive.py", openHandsDriver)
	start.JSON("openhands/settings.json", map[string]any{
		"url": r.BaseURL(), "dialect": r.Model.Dialect, "provider": provider, "model": r.Model.Name, "effort": s.ReasoningEffort, "shell": r.Shell,
		"system": s.SystemPrompt, "servers": mcpServers(r.Servers, "http"), "without": without, "env": slices.Sorted(maps.Keys(s.Env)),
		"conversation": given(map[string]any{"max_iteration_per_run": s.MaxTurns}),
	})
	return start, nil
}
