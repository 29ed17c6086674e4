// Command browser is a surface: Chromium in the sandbox of another environment,
// which agents see as screenshots and trees, and drive with clicks and keys. The
// protocol goes through a pipe, so that nothing in the sandbox can drive it.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

func main() {
	plugins.Serve(plugins.Environment(plugins.Info{
		Name: "browser", Version: "0.1.0",
		Doc:          "A surface: Chromium in the sandbox, to observe and act on.",
		Settings:     check,
		Capabilities: []string{environment.CapabilityNoSandboxes},
	}, Config{}, environment.SurfaceOnly(newSurface())))
}
