// Command script serves the verifier that runs the task's own test program in
// the sandbox and reads the scores that it writes.
//
// The content of the sandbox is untrusted. A score counts only if its file did
// not exist before the tests, if sandboxd itself read it as a regular file
// after killing everything that the tests left running, and if it is a finite
// number. Anything else is a finding or an error, never a score.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/verifier"
)

func main() {
	plugins.Serve(plugins.Verifier(plugins.Info{
		Name: "script", Version: "1.0.0",
		Doc: "Runs the task's test program in the sandbox and reads the scores that it writes. The task says which program and which files.",
		Settings: func(s plugins.Settings) []config.Problem {
			_, err := settingsOf(s.JSON)
			if err != nil {
				return []config.Problem{{Summary: "Test program cannot be run", Detail: err.Error()}}
			}
			return nil
		},
	}, nil, verifier.Traits{Needs: verifier.NeedsSandbox}, script{}))
}
