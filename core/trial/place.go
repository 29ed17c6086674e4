package trial

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/core/trial/views"
)

// What may lie in an attempt's Runtime, which may be in memory, when there is a
// Disk beside it: files that come and go on a disk cost as much as all else that
// the core does, and next to nothing in memory.
const (
	inMemory   = 4 << 20   // largest view, in bytes
	leftMemory = 256 << 20 // bytes that stay free; below them all goes to the disk
)

// newFolder makes dir, which may exist, for us alone.
func newFolder(dir string) error {
	if os.Mkdir(dir, 0o700) == nil {
		return nil
	}
	return os.MkdirAll(dir, 0o700)
}

// tight says that what is not bounded, or larger than what is usual, belongs on
// the disk now.
func (a *attempt) tight() bool {
	if a.in.Disk == "" {
		return false
	}
	var fs unix.Statfs_t
	return unix.Statfs(a.in.Runtime, &fs) == nil && int64(fs.Bavail)*fs.Bsize < leftMemory //nolint:gosec // far below 2^63
}

// disk makes a folder of the attempt for what may be large.
func (a *attempt) disk(name string) (string, error) {
	dir := filepath.Join(a.in.Disk, name)
	if a.in.Disk == "" {
		dir = filepath.Join(a.in.Runtime, name)
	}
	return dir, newFolder(dir)
}

// scratch makes a folder that a plugin writes to.
func (a *attempt) scratch(name string) (string, error) {
	if a.tight() {
		return a.disk(name)
	}
	dir := filepath.Join(a.in.Runtime, name)
	return dir, newFolder(dir)
}

// view makes a view with build, in the Runtime if it fits there.
func (a *attempt) view(name string, build func(dir string, room *views.Room) error) (string, error) {
	dir := filepath.Join(a.in.Runtime, name)
	if a.in.Disk == "" {
		return dir, build(dir, nil)
	}
	if !a.tight() {
		err := build(dir, &views.Room{Left: inMemory})
		if !errors.Is(err, views.ErrNoRoom) {
			return dir, err
		}
		if err = os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	if err := newFolder(a.in.Disk); err != nil {
		return "", err
	}
	dir = filepath.Join(a.in.Disk, name)
	return dir, build(dir, nil)
}

// removeFolders removes all folders of the attempt outside of its record.
func (a *attempt) removeFolders() error {
	err := os.RemoveAll(a.in.Runtime)
	if a.in.Disk != "" {
		err = errors.Join(err, os.RemoveAll(a.in.Disk))
	}
	return err
}
