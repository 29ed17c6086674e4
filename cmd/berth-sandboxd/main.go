// Command berth-sandboxd is PID 1 of a sandbox. It is mounted as /berth/sandboxd
// and started as root by whoever made the sandbox; what it does is in package
// sandboxd.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
)

// init locks main to the first thread, of the half that changes credentials:
// what is done to them is done to a thread. The half that serves is better off
// without: the runtime would make a further thread to start threads from, and
// wake two for each switch to and from main.
func init() {
	if !sandboxd.Serves(os.Args) {
		runtime.LockOSThread()
	}
}

func main() {
	if err := sandboxd.Main(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err) // an engine's log shows it
		os.Exit(1)
	}
}
