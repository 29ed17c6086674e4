// Package node knows the places on this machine's own disk: where sockets,
// locks and control folders of a running berth lie, who owns them, and which
// were left by a process that is gone. It also says who a process is, so that
// another one, perhaps on another machine, can name it and see whether it
// still lives.
//
// It must not know what a run folder holds, and must not touch anything
// outside its own folder.
package node

import (
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// EnvDir names the folder to use instead of the usual ones.
const EnvDir = runtimedir.Env

// Dir is the folder for what must not lie on a shared file system: see
// [runtimedir.Finder.Dir].
func Dir() (string, error) { return runtimedir.Dir() }

// disk is a folder of this user on a local disk for what is too large for
// memory; empty when dir is on a disk itself, or there is no other.
func disk(dir string) string {
	if !runtimedir.InMemory(dir) {
		return ""
	}
	return runtimedir.Disk()
}
