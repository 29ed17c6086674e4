// Command docker is the environment plugin "docker": sandboxes as containers
// of a Docker daemon on this machine.
package main

import (
	"github.com/berth-eval/berth/environments/docker/internal/docker"
	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

func main() {
	plugins.Serve(plugins.Environment(plugins.Info{
		Name: "docker", Version: "0.1.0",
		Doc:          "Sandboxes as containers of a Docker daemon on this machine.",
		Env:          []string{"DOCKER_HOST"},
		Capabilities: []string{environment.CapabilitySidecars},
	}, engine.Config{}, docker.New()))
}
