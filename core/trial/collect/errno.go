package collect

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// RefusesName reports whether the name alone caused an error of the host's file
// system. Then the author of the name is responsible.
func RefusesName(err error) bool {
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EILSEQ) ||
		errors.Is(err, syscall.EISDIR)
}

// NoSpace reports whether an error means that a disk of this host is full.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// free returns how many bytes are free on the disk of dir, which need not exist
// yet; false if this is not known.
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
