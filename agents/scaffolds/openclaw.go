package main

import (
	"cmp"
	_ "embed" // the driver
	"fmt"
	"strings"

	"github.com/google/uuid"

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
			// With this file it first tries to clean up after an older version.
			Drop: []string{"npm/node_modules/openclaw/.openclaw-lifecycle-pending"},
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.MCP, cli.Skills},
		Efforts:   []string{"off", "minimal", "low", "medium", "high"},
		Logs:      []string{"openclaw/state/agents/main/agent"},
		ModelName: "model",
		Start:     startOpenClaw,
		Events:    func(b *cli.Transcript) cli.Events { return &openClawEvents{piEvents{b, cli.Ending{Open: midway}}} },
	}
}

// homeOpenClaw is the folder of OpenClaw's files in the sandbox.
const homeOpenClaw = cli.Home + "/openclaw"

func startOpenClaw(r *cli.Run) (cli.Start, error) {
	start := withOpenClaw(r, nil)
	start.Argv = append(start.Argv, "main", cmp.Or(r.Session, uuid.NewString()))
	start.Options("--message-file", start.Text(fmt.Sprintf("openclaw/message-%d.md", r.Turn), r.Message))
	start.Argv = append(start.Argv, optionsOpenClaw(r)...)
	return start, nil
}

// optionsOpenClaw are the options of each message.
func optionsOpenClaw(r *cli.Run) []string {
	start := cli.Start{Argv: []string{"--timeout", "604800"}} // the core enforces the deadline of the turn
	start.Options("--thinking", r.Settings.ReasoningEffort)
	return start.Argv
}

// withOpenClaw returns a start with OpenClaw's variables, its configuration and the
// driver. Argv is the driver and OpenClaw itself; an agent, a session and options
// follow. agents are the agents that OpenClaw has; nil: one, which is main.
func withOpenClaw(r *cli.Run, agents []string) cli.Start {
	start := cli.Start{
		Argv: []string{cli.Bundle + "/bin/node", homeOpenClaw + "/drive.mjs", cli.Bundle + "/npm/node_modules/openclaw/openclaw.mjs", homeOpenClaw + "/state"},
		Env: map[string]string{
			"OPENCLAW_STATE_DIR": homeOpenClaw + "/state", "OPENCLAW_CONFIG_PATH": homeOpenClaw + "/openclaw.json", "OPENCLAW_HOME": homeOpenClaw, "OPENCLAW_NO_RESPAWN": "1",
			"OPENCLAW_NO_AUTO_UPDATE": "1", "OPENCLAW_OFFLINE": "1", "OPENCLAW_TELEMETRY": "0", "NODE_NO_WARNINGS": "1", "BERTH_MODEL_TOKEN": r.Model.Token,
		},
		// The folder of the state must exist. Skills there win over OpenClaw's own of the
		// same name, which those of skills.load.extraDirs do not.
		Files: append([]cli.File{{Path: "openclaw/state/.keep"}}, r.SkillLinks("openclaw/state/skills")...),
	}
	start.Text("openclaw/drive.mjs", openClawDriver)
	provider := piProvider(r, "${BERTH_MODEL_TOKEN}", map[string]bool{"supportsReasoningEffort": true})
	entries, ownership := map[string]any{}, ""
	for _, a := range agents {
		entries[a] = map[string]any{"workspace": r.Workdir} // otherwise it works in a folder of its name there
		ownership = "explicit"                              // every request names its agent
	}
	start.JSON("openclaw/openclaw.json", given(map[string]any{
		"agents": given(map[string]any{
			"defaults": map[string]any{"model": map[string]any{"primary": "berth/" + r.Model.Name}, "workspace": r.Workdir, "skipBootstrap": true},
			"entries":  entries, "ownership": ownership,
		}),
		"tools":  map[string]any{"profile": "coding", "exec": map[string]any{"host": "gateway", "security": "full", "ask": "off"}},
		"models": map[string]any{"mode": "merge", "providers": map[string]any{"berth": provider}},
		"update": map[string]any{"checkOnStart": false},
		"mcp":    given(map[string]any{"servers": mcpServers(r.Servers, "streamable-http")}),
	}))
	if r.Shell != "" {
		start.Env["SHELL"] = r.Shell
	}
	return start
}

// openClawEvents reads its transcript, whose messages have pi's format, and the
// driver's report of how it ended.
type openClawEvents struct{ piEvents }

// Line implements cli.Events.
func (e *openClawEvents) Line(line []byte) {
	var v struct {
		Type  string `json:"type"`
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if !cli.Parse(line, &v) || v.Type != "result" {
		e.piEvents.Line(line)
	} else if e.end.Wrong == "" && v.Error.Message != "" {
		e.end = cli.Ending{Wrong: v.Error.Message}
	}
}

// End implements cli.Events.
func (e *openClawEvents) End(x cli.Exit) (agent.Yield, error) {
	if e.end.Wrong == "" && x.ExitCode > 0 && cli.BlamesModel(x.Errors) {
		e.end.Wrong = strings.TrimSpace(x.Errors)
	}
	return e.piEvents.End(x)
}
