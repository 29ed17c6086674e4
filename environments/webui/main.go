// Command webui is a surface on which an agent rebuilds a web page: it writes the
// files of the page, and sees what a browser makes of them. At the end the page and
// its target are captured, element by element.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

func main() { plugins.Serve(served()) }

func served() plugins.Plugin {
	return plugins.Environment(plugins.Info{
		Name: "webui", Version: "0.1.0",
		Settings:     check,
		Doc:          "A surface: a web page to rebuild, with pictures of what Chromium in the sandbox makes of it.",
		Capabilities: []string{environment.CapabilityNoSandboxes},
	}, Config{}, environment.SurfaceOnly(newSurface()))
}
