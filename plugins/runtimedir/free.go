package runtimedir

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Free returns how many bytes are free on the disk of dir, which need not exist
// yet; false if this is not known.
func Free(dir string) (bytes int64, ok bool) {
	for {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail) * fs.Bsize, true //nolint:gosec // far below 2^63
}
