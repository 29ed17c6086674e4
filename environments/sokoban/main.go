// Command sokoban is a surface: a room of Sokoban, which agents see as a picture or
// as characters, and in which they push boxes onto targets.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

func main() {
	plugins.Serve(plugins.Environment(plugins.Info{
		Name: "sokoban", Version: "1.0.0",
		Doc:          "A surface: a room of Sokoban, in which boxes are pushed onto targets.",
		Settings:     check,
		Capabilities: []string{environment.CapabilityNoSandboxes},
	}, Config{}, environment.SurfaceOnly(newSurface())))
}
