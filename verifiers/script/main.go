// Command script serves the verifier that runs the task's own test program in
// the sandbox and reads the scores that it writes.
//
// What stands in the sandbox is hostile: a score counts only if the file was
// not there before the tests, was read by sandboxd itself as a regular file,
// after everything that the tests left running was killed, and is a finite
// number. Anything else is a finding or an error, never a score.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/verifier"
)

func main() {
	plugins.Serve(plugins.Verifier(plugins.Info{
		Name: "script", Version: "1.0.0",
		Doc: "Runs the task's test program in the sandbox and reads the scores that it writes. The task says which program and which files.",
	}, nil, verifier.Traits{Needs: verifier.NeedsSandbox}, script{dial: dial}))
}
