// Command podman is the environment plugin "podman". Its sandboxes are Podman
// containers, and no part of it needs root.
package main

import (
	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/environments/podman/internal/podman"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

func main() {
	plugins.Serve(plugins.Environment(plugins.Info{
		Name: "podman", Version: "0.1.0",
		Doc:          "Sandboxes as containers of Podman. Nothing in it needs root.",
		Env:          []string{"CONTAINER_HOST", runtimedir.ScratchEnv, runtimedir.JobEnv},
		Capabilities: []string{environment.CapabilitySidecars},
	}, engine.Config{}, podman.New()))
}
