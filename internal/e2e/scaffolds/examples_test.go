package scaffolds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
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
