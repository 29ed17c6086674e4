package views

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Folders are the two working folders of an attempt.
type Folders struct {
	Runtime string // node-local, perhaps in memory
	Disk    string // on a disk, created when it is needed; empty: Runtime is on a disk, or there is no other
}

// Bounds for the use of Runtime, which may be in memory, when there is a Disk:
// short-lived files on a disk cost as much time as everything else that the
// core does, and almost none in memory.
const (
	inMemory   = 4 << 20   // largest view, in bytes
	leftMemory = 256 << 20 // bytes that must stay free; with less, everything goes to the disk
)

// Make makes dir, which may exist, accessible only to this user.
func Make(dir string) error {
	if os.Mkdir(dir, 0o700) == nil {
		return nil
	}
	return os.MkdirAll(dir, 0o700)
}

// tight reports whether unbounded or unusually large files belong on the disk
// now.
func (f Folders) tight() bool {
	if f.Disk == "" {
		return false
	}
	var fs unix.Statfs_t
	return unix.Statfs(f.Runtime, &fs) == nil && int64(fs.Bavail)*fs.Bsize < leftMemory //nolint:gosec // far below 2^63
}

// Large makes a folder of the attempt for large files.
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

// View makes a view with build, in Runtime if it fits there.
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

// built makes a view without a limit. It removes a view that fails, because the
// disk may be full.
func built(dir string, build func(string, *Room) error) error {
	err := build(dir, nil)
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// Remove removes all folders of the attempt outside its record.
func (f Folders) Remove() error {
	err := os.RemoveAll(f.Runtime)
	if f.Disk != "" {
		err = errors.Join(err, os.RemoveAll(f.Disk))
	}
	return err
}
