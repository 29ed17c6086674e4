// Package node manages the places of running processes on the local disk of
// this machine: the folders for their sockets, locks and control folders. It
// knows who owns a place, and which places were left by dead processes. It also
// identifies processes, so that another process, perhaps on another machine,
// can name one and check whether it still lives.
//
// It must not know what a run folder contains, and must not touch anything
// outside its own folder.
package node

import (
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// EnvDir is the variable that overrides the runtime folder.
const EnvDir = runtimedir.Env

// Dir returns the folder for files that must not lie on a shared file system:
// see [runtimedir.Finder.Dir].
func Dir() (string, error) { return runtimedir.Dir() }

// disk returns a folder of this user on a local disk for files that are too
// large for memory; empty when dir is on a disk itself, or there is no such
// folder.
func disk(dir string) string {
	if !runtimedir.InMemory(dir) {
		return ""
	}
	return runtimedir.Disk()
}
