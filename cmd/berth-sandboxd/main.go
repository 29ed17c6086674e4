// Command berth-sandboxd is PID 1 of a sandbox. The environment mounts it as
// /berth/sandboxd and starts it as root. Package sandboxd does the work.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
)

// init locks main to the first thread in the first half of sandboxd, which
// changes credentials: they belong to a thread. The second half, which serves,
// must not be locked: the runtime would create another thread to start threads
// from, and wake two threads for each switch to and from main.
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
