// Command scaffolds serves agents that are separate programs and run unmodified
// inside the sandbox. Each is declared in its own file: what its bundle
// contains, how it is started, and how its output is read.
//
// It must not know an environment, a task or a provider's address.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/cli"
)

// version is the version of the declarations.
const version = "1.0.0"

// scaffolds returns the declarations.
func scaffolds() []cli.Scaffold {
	return []cli.Scaffold{claudeCode(), codex(), pi(), geminiCLI(), miniSWEAgent(), nanobot(), openCode(), qwenCode(), openClaw(), openHands()}
}

func main() {
	list := []plugins.Plugin{custom(), speaker(), edict()}
	for _, s := range scaffolds() {
		list = append(list, cli.Plugin(s))
	}
	plugins.Serve(list...)
}
