// Command terminus serves an agent that works at a terminal. A model sees the
// screen, replies with keystrokes and how long to wait, and sees the screen
// again. The loop, the screen and the conversation are on the host. The sandbox
// needs only a shell.
//
// It must not know a provider or an environment.
package main

import (
	"context"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/loop"
)

// name and version also appear in trajectories.
const (
	name    = "terminus"
	version = "1.0.0"
)

func main() {
	plugins.Serve(plugins.Agent(plugins.Info{
		Name: name, Version: version,
		Doc: "Works at a terminal from the host: the model sees the screen, says in JSON what to type and how long to wait, and sees the screen again. Nothing is installed in the sandbox.",
	}, Config{}, scaffold()))
}

func scaffold() loop.Agent[Config] {
	return loop.Agent[Config]{
		Terminal: true, Prior: true, Skills: true,
		New: func(_ context.Context, s *loop.Session[Config]) (loop.Worker, error) { return newWorker(s) },
	}
}
