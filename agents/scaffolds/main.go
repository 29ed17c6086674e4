// Command scaffolds serves agents that are programs of their own and run inside
// the sandbox, unmodified. Each is a declaration in a file of its own: what its
// bundle is made of, how it is started, and how what it prints is read.
//
// It must not know an environment, a task or a provider's address.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/cli"
)

// version is that of the declarations.
const version = "1.0.0"

// scaffolds are the declarations.
func scaffolds() []cli.Scaffold {
	return []cli.Scaffold{claudeCode(), codex(), pi(), geminiCLI(), miniSWEAgent(), nanobot(), openCode(), qwenCode(), openClaw(), openHands()}
}

func main() {
	list := []plugins.Plugin{custom(), speaker()}
	for _, s := range scaffolds() {
		list = append(list, cli.Plugin(s))
	}
	plugins.Serve(list...)
}
