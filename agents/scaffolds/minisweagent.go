package main

import (
	_ "embed" // the driver

	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

//go:embed minisweagent.py
var miniDriver string

func miniSWEAgent() cli.Scaffold {
	return cli.Scaffold{
		Name: "mini-swe-agent", Version: version,
		Doc: "mini-SWE-agent as it is on PyPI, inside the sandbox. A short driver prints its conversation as it works.",
		Recipe: python(bundle.Recipe{
			Version: "2.4.6",
			PyPI:    []string{"mini-swe-agent=={version}", "mcp==2.3.0"}, // litellm needs mcp but does not declare it
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.MaxTurns, cli.SystemPrompt},
		Logs:      []string{"mini/conversation.json"},
		ModelName: "model",
		NoArgs:    true,
		Start:     startMini,
		Events:    cli.Driver,
	}
}

func startMini(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/mini"
	access := map[string]any{"api_base": r.BaseURL(), "api_key": r.Model.Token, "num_retries": 0}
	provider, system := "openai/", ""
	switch r.Model.Dialect {
	case model.DialectAnthropic:
		provider = "anthropic/"
	case model.DialectOpenAI:
		provider = "openai/responses/"
	default:
		// By a model's name and its effort LiteLLM may choose the Responses API, which
		// the endpoint does not serve.
		access["_skip_responses_api_bridge"] = true
		access["allowed_openai_params"] = []string{"reasoning_effort"}
	}
	if p := r.Settings.SystemPrompt; p != "" {
		system = "\n{% raw %}" + p + "{% endraw %}\n"
	}
	start := cli.Start{Stdin: r.Message}
	start.Argv = []string{cli.Bundle + "/bin/python", "-I", start.Text("mini/drive.py", miniDriver), cli.Bundle, home, provider + r.Model.Name, start.Marshal(map[string]any{
		"agent": map[string]any{"step_limit": r.Settings.MaxTurns, "cost_limit": 0}, "model": given(map[string]any{"reasoning_effort": r.Settings.ReasoningEffort}),
		"system": system,
	}), r.Session}
	start.Env = map[string]string{"BERTH_MODEL": start.Marshal(access)}
	return start, nil
}
