package main

import (
	_ "embed" // the driver

	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

//go:embed nanobot.py
var nanobotDriver string

func nanobot() cli.Scaffold {
	return cli.Scaffold{
		Name: "nanobot", Version: version,
		Doc: "nanobot as it is on PyPI, inside the sandbox. A short driver prints what it does as it works.",
		Recipe: python(bundle.Recipe{
			Version: "0.3.5", PyPI: []string{"nanobot-ai=={version}"},
			Drop: []string{"python/nanobot/{tui,web}"}, // its own user interfaces
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.MaxTurns, cli.SystemPrompt, cli.MCP, cli.Skills},
		Logs:      []string{"nanobot/sessions"},
		ModelName: "model",
		NoArgs:    true,
		Start:     startNanobot,
		Events:    cli.Driver,
	}
}

func startNanobot(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/nanobot"
	s := r.Settings
	provider := map[string]any{"apiKey": "${BERTH_TOKEN}", "apiBase": r.BaseURL()}
	name := "custom"
	switch r.Model.Dialect {
	case model.DialectOpenAI:
		name, provider["apiType"] = "openai", "responses"
	case model.DialectAnthropic:
		name = "anthropic"
	default:
	}
	start := cli.Start{
		Argv:  []string{cli.Bundle + "/bin/python", "-I", home + "/drive.py", cli.Bundle, home, r.Workdir, r.Session},
		Stdin: r.Message, Files: r.SkillLinks("nanobot/workspace/skills"), Env: map[string]string{"BERTH_TOKEN": r.Model.Token},
	}
	start.Text("nanobot/drive.py", nanobotDriver)
	start.Text("nanobot/workspace/USER.md", s.SystemPrompt)
	start.JSON("nanobot/config.json", map[string]any{
		"agents": map[string]any{"defaults": given(map[string]any{
			"model": r.Model.Name, "provider": name, "workspace": home + "/workspace", "reasoningEffort": s.ReasoningEffort, "maxToolIterations": s.MaxTurns,
		})},
		"providers": map[string]any{name: provider}, "tools": map[string]any{"mcpServers": mcpServers(r.Servers, "streamableHttp")},
	})
	return start, nil
}
