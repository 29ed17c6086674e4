// Command local-init is the first process in the namespaces of a local sandbox:
// it builds the sandbox around itself and becomes sandboxd. It is a program of
// its own, without gRPC, because it is started for every sandbox; nobody
// starts it by hand.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/inside"
	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// init locks main to the first thread: what is done to credentials is done to
// a thread.
func init() { runtime.LockOSThread() }

// self is the descriptor through which the plugin executes this program: by a
// path it might not be reachable for the ids of the sandbox.
const self = inside.Channel + 1

func main() {
	_ = unix.Close(self)
	probe, err := inside.Enter()
	if err == nil && !probe {
		// From the read-only mount, so that /proc/1/exe is a file that nobody
		// inside can open for writing.
		err = become.Become("/berth/sandboxd")
	}
	if err == nil {
		return
	}
	if sent := inside.Fail(err); errors.Is(sent, unix.ENOTSOCK) || errors.Is(sent, unix.EBADF) {
		fmt.Fprintln(os.Stderr, "local-init: the environment plugin \"local\" starts this program; it does nothing when you start it:", err)
	}
	os.Exit(1)
}
