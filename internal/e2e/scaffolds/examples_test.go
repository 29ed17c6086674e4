package scaffolds

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// copilot is the agent that examples/own-cli declares.
var copilot = scaffold{
	name: "copilot", plugin: "cli", tool: "bash", arg: "command", more: map[string]string{"description": "a test"}, refuse: record.Yielded, time: 200,
	// It lets no command begin with kill unless it is told a process.
	kill: `printf '%s\n' 'for p in /proc/[0-9]*; do case $(readlink $p/exe) in /opt/berth/agent/*) kill -9 ${p#/proc/} ;; esac; done' >/tmp/k; sh /tmp/k; sleep 60`,
	bundle: []string{
		"copilot@1.0.102", "--npm", "@github/copilot-linux-x64@{version}", "--debian", "libc6", "--debian", "libstdc++6", "--debian", "libgcc-s1", "--debian", "bash-static",
		"--link", "copilot=npm/node_modules/@github/copilot-linux-x64/copilot", "--link", "bash=usr/bin/bash-static",
	},
}

// Berth has no code for this program. With the declaration of the example, it
// passes the tests of all other programs.
func init() {
	raw, err := os.ReadFile("../../../examples/own-cli/berth.hcl")
	if err != nil {
		panic(err)
	}
	_, config, _ := strings.Cut(string(raw), "  config {\n")
	copilot.config, _, _ = strings.Cut(config, "\n  }\n}\n")
	scaffolds = append(scaffolds, copilot)
}

// The examples that declare an agent solve their task.
func TestTheExamplesOfDeclarations(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]scaffold{"own-cli": copilot, "acp": {name: "acp-gemini", bundle: []string{"gemini-cli"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			code, out, stderr := tree.Berth(t, t.TempDir(), "run", filepath.Join(tree.Root, "examples", name), "--json", "--require", "passed = planned")
			if code != 0 {
				t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
			}
		})
	}
}

// resolved returns the configuration of a scaffold that is declared in HCL, as
// its plugin gets it.
func (s scaffold) resolved(t *testing.T) (settings map[string]any) {
	t.Helper()
	dir := t.TempDir()
	s.lay(t, dir, map[string]ending{"solve": s.trials()["solve"]})
	tree.Berth(t, dir, "run")
	found := e2etest.Found(t, 1, dir, "runs", "*", "manifest.jsonl")
	for line := range strings.Lines(e2etest.Read(t, filepath.Dir(found[0]), "manifest.jsonl")) {
		var m struct {
			Cell struct {
				Identity map[string]struct {
					Agent struct {
						Config struct {
							Values map[string]any `json:"values"`
						} `json:"config"`
					} `json:"agent"`
				} `json:"identity"`
			} `json:"cell"`
		}
		e2etest.Must(t, json.Unmarshal([]byte(line), &m))
		for _, id := range m.Cell.Identity {
			settings = id.Agent.Config.Values
		}
	}
	if settings == nil {
		t.Fatal("the manifest has no configuration")
	}
	return settings
}
