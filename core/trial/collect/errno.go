package collect

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// RefusesName is true for errors of this host that a name alone causes, which is
// whoever made the name.
func RefusesName(err error) bool {
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EILSEQ) ||
		errors.Is(err, syscall.EISDIR)
}

// NoSpace is true for errors of a disk of this host that is full.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// free is how many bytes the disk has room for that dir is on, or will be on;
// false: nobody can tell.
func free(dir string) (bytes int64, ok bool) {
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
