package scaffolds

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// brought is what an image, or the folder of a task, contains for the CLIs.
type brought struct {
	docker  string            // added to the Dockerfile
	files   map[string]string // of the working folder
	message string            // instead of the usual one
}

const nowhereToGo = "http://127.0.0.1:9"

// images are what must not lead a CLI away from its model: settings and
// variables that name another one, a proxy, and messages that look like options
// or commands.
func images(t *testing.T) map[string]brought {
	t.Helper()
	asJSON := func(v any) string {
		raw, err := json.Marshal(v)
		e2etest.Must(t, err)
		return string(raw)
	}
	elsewhere := map[string]string{
		"ANTHROPIC_BASE_URL": nowhereToGo, "ANTHROPIC_API_KEY": "other", "OPENAI_BASE_URL": nowhereToGo, "GOOGLE_GEMINI_BASE_URL": nowhereToGo,
		"HTTP_PROXY": nowhereToGo, "HTTPS_PROXY": nowhereToGo, "ANTHROPIC_MODEL": "other",
	}
	env, proxy := "", ""
	for _, name := range []string{"ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OPENAI_API_BASE"} {
		env += "ENV " + name + "=" + nowhereToGo + "\n"
	}
	for _, name := range []string{"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "GOOGLE_GENAI_USE_VERTEXAI"} {
		env += "ENV " + name + "=1\n"
	}
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		proxy += "ENV " + name + "=" + nowhereToGo + "\n"
	}
	return map[string]brought{
		"settings": {files: map[string]string{
			".claude/settings.json": asJSON(map[string]any{"env": elsewhere, "model": "other", "apiKeyHelper": "echo other"}),
			".codex/config.toml":    "model = \"other\"\nmodel_provider = \"other\"\n[model_providers.other]\nname = \"other\"\nbase_url = \"" + nowhereToGo + "\"\n",
			".gemini/settings.json": asJSON(map[string]any{"security": map[string]any{"auth": map[string]any{"selectedType": "oauth-personal"}}, "model": map[string]any{"name": "other"}}),
			".gemini/.env":          "GOOGLE_GEMINI_BASE_URL=" + nowhereToGo + "\n",
			".env":                  "ANTHROPIC_BASE_URL=" + nowhereToGo + "\nOPENAI_BASE_URL=" + nowhereToGo + "\nOPENAI_API_BASE=" + nowhereToGo + "\nGOOGLE_GEMINI_BASE_URL=" + nowhereToGo + "\n",
			".pi/settings.json":     asJSON(map[string]any{"defaultProvider": "other", "defaultModel": "other"}),
		}},
		"variables": {docker: env},
		"proxy":     {docker: proxy},
		"command":   {message: "\n/help MARK-command"},
		"option":    {message: "--help -p MARK-option"},
	}
}

// A CLI uses the model of the experiment, whatever an image or the folder of a
// task says of models and proxies. A message is always taken as a message.
func TestNothingOfTheImageLeadsACLIElsewhere(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			dir, all := t.TempDir(), images(t)
			if s.plugin == "acp" { // there the experiment says what goes before them
				delete(all, "settings")
				delete(all, "variables")
			}
			trials := map[string]ending{}
			for name := range all {
				solved := s.trials()["solve"]
				for i := range solved.replies {
					solved.replies[i] = s.marked(solved.replies[i], "solve", name)
				}
				solved.outcome, solved.end = record.Passed, record.Yielded
				trials[name] = solved
			}
			s.lay(t, dir, trials)
			for name, b := range all {
				task := filepath.Join(dir, "tasks", name)
				docker := "FROM debian:bookworm-slim\nWORKDIR /app\n" + b.docker
				for path, text := range b.files {
					docker += "COPY " + path + " /app/" + path + "\n"
					e2etest.Write(t, filepath.Join(task, "environment"), map[string]string{path: text})
				}
				e2etest.Write(t, task, map[string]string{"environment/Dockerfile": docker})
				if b.message != "" {
					e2etest.Write(t, task, map[string]string{"instruction.md": b.message + "\n"})
				}
			}
			s.run(t, dir, trials)
		})
	}
}
