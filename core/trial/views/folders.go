package views

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Folders are the two of an attempt; nothing else is in them.
type Folders struct {
	Runtime string // node-local, perhaps in memory
	Disk    string // on a disk, made when it is needed; empty: Runtime is on one, or there is none
}

// What may lie in the Runtime, which may be in memory, when there is a
// Disk beside it: files that come and go on a disk cost as much as all else that
// the core does, and next to nothing in memory.
const (
	inMemory   = 4 << 20   // largest view, in bytes
	leftMemory = 256 << 20 // bytes that stay free; below them all goes to the disk
)

// Make makes dir, which may exist, for us alone.
func Make(dir string) error {
	if os.Mkdir(dir, 0o700) == nil {
		return nil
	}
	return os.MkdirAll(dir, 0o700)
}

// tight says that what is not bounded, or larger than what is usual, belongs on
// the disk now.
func (f Folders) tight() bool {
	if f.Disk == "" {
		return false
	}
	var fs unix.Statfs_t
	return unix.Statfs(f.Runtime, &fs) == nil && int64(fs.Bavail)*fs.Bsize < leftMemory //nolint:gosec // far below 2^63
}

// Large makes a folder of the attempt for what may be large.
func (f Folders) Large(name string) (string, error) {
	dir := filepath.Join(f.Disk, name)
	if f.Disk == "" {
		dir = filepath.Join(f.Runtime, name)
	}
	return dir, Make(dir)
}

// Scratch makes a folder that a plugin writes to.
func (f Folders) Scratch(name string) (string, error) {
	if f.tight() {
		return f.Large(name)
	}
	dir := filepath.Join(f.Runtime, name)
	return dir, Make(dir)
}

// View makes a view with build, in the Runtime if it fits there.
func (f Folders) View(name string, build func(dir string, room *Room) error) (string, error) {
	dir := filepath.Join(f.Runtime, name)
	if f.Disk == "" {
		return dir, built(dir, build)
	}
	if !f.tight() {
		err := build(dir, &Room{Left: inMemory})
		if !errors.Is(err, ErrNoRoom) {
			return dir, err
		}
		if err = os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	if err := Make(f.Disk); err != nil {
		return "", err
	}
	dir = filepath.Join(f.Disk, name)
	return dir, built(dir, build)
}

// built makes a view without a limit. One that fails takes no room on a disk that
// may be full.
func built(dir string, build func(string, *Room) error) error {
	err := build(dir, nil)
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// Remove removes all folders of the attempt outside of its record.
func (f Folders) Remove() error {
	err := os.RemoveAll(f.Runtime)
	if f.Disk != "" {
		err = errors.Join(err, os.RemoveAll(f.Disk))
	}
	return err
}
