// Command local is the environment plugin "local", the embedded default:
// sandboxes out of namespaces over the host's own programs.
package main

import (
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/local"
	"github.com/berth-eval/berth/environments/local/internal/maker"
	"github.com/berth-eval/berth/plugins"
)

// init locks main to the first thread: where the process that holds the user's
// subordinate ids is started by it, its death signal follows this thread.
func init() { runtime.LockOSThread() }

func main() {
	// The start of a sandbox copies the page tables of this process, and the next
	// write to each page its page: a heap that is collected seldom, as the host
	// sets for plugins, costs more here than collecting it.
	debug.SetGCPercent(100)
	unix.Umask(0o022)           // what sandboxes share must be readable by all of their users
	process, err := ids.Enter() // may continue in another process
	runtime.UnlockOSThread()
	o := local.Options{Process: process, Fault: err}
	if err == nil {
		o.Places = local.Places(process.UID)
		o.Init, o.Fault = maker.InitPath()
	}
	plugins.Serve(plugins.Environment(plugins.Info{
		Name: "local", Version: "0.1.0",
		Doc: "Sandboxes over the host's own programs, made of namespaces: no engine, no root, no image.",
	}, local.Config{}, local.New(o)))
}
