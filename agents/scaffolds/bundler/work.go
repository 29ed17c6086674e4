package bundler

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// making is the prefix of the folders in which bundles are built.
const making = ".making-"

// Left removes the temporary folders in dir of processes that were killed, and
// returns their paths. If dry, it removes nothing. Each process holds a lock on
// its own folder. The kernel releases the lock when the process ends for any
// reason.
func Left(dir string, dry bool) (left []string, err error) {
	all, err := filepath.Glob(filepath.Join(dir, making+"*"))
	if err != nil || dir == "" {
		return nil, err
	}
	for _, l := range all {
		f, mine := hold(l)
		if !mine {
			continue
		}
		var wrong error
		if !dry {
			wrong = remove(l)
		}
		_ = f.Close()
		if wrong == nil {
			left = append(left, l)
		}
		err = errors.Join(err, wrong)
	}
	return left, err
}

// workIn makes a temporary folder for building a bundle, next to the bundles,
// and removes those of processes that were killed.
func workIn(dir string) (work string, done func() error, err error) {
	_, _ = Left(dir, false) // a folder that cannot be removed, such as another user's, stays
	for range 100 {
		if work, err = os.MkdirTemp(dir, making); err != nil {
			return "", nil, err
		}
		if f, mine := hold(work); mine {
			return work, func() error { return errors.Join(remove(work), f.Close()) }, nil
		} // another process removed it because it looked abandoned
	}
	return "", nil, fmt.Errorf("no folder can be held in %s", dir)
}

// hold locks a folder if no other process has locked it and it still has this
// name.
func hold(dir string) (*os.File, bool) {
	f, _ := lockFolder(dir, unix.LOCK_EX) // a folder that cannot be locked is another's
	return f, f != nil
}
