// Command aes serves the verifier that measures how similar a rebuilt web page is to
// its target, by atomic element similarity: element by element, with the places and
// styles that a browser gave them.
//
// It is a pure function of what was captured of both pages. A page that an agent
// wrote is untrusted: whatever it is, it is a score and no error.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/verifier"
)

func main() { plugins.Serve(served()) }

func served() plugins.Plugin {
	return plugins.Verifier(plugins.Info{
		Name: "aes", Version: "1.0.0",
		Doc:      "Atomic element similarity of a rebuilt web page and its target, from what was captured of both.",
		Settings: plugins.SettingsAreConfig[Config],
	}, Config{}, verifier.Traits{Needs: verifier.NeedsNone}, aes{})
}
