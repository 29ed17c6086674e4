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

// init locks main to the first thread: what is done to credentials is done to a
// thread.
func init() { runtime.LockOSThread() }

func main() {
	if err := sandboxd.Main(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err) // an engine's log shows it
		os.Exit(1)
	}
}
