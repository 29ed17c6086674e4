package plugin

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// maxSocketDir is the longest path of the folder for sockets, in bytes: the
// path of a Unix socket is limited to 107 bytes, and each process has a folder
// and a socket name below it.
const maxSocketDir = 60

// openSockets makes the private folder for the sockets of one host, and removes the
// folders that dead hosts left behind. It is in the runtime folder, or in the folder
// for temporary files if there is none, which is enough to list plugins or to clean up.
func openSockets() (*node.Scratch, error) {
	base, err := runtimedir.Dir()
	if err == nil {
		base = filepath.Join(base, "s")
	} else {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("berth-plugins-%d", os.Geteuid()))
		if len(filepath.Join(base, "12345678")) > maxSocketDir {
			base = filepath.Join("/tmp", filepath.Base(base))
		}
	}
	if err = runtimedir.Make(base); err != nil {
		return nil, fmt.Errorf("folder for plugin sockets: %w", err)
	}
	return node.NewScratch(base)
}
