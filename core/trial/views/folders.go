package views

import (
	"errors"
	"os"
	"path/filepath"
)

// Folders are the two working folders of an attempt.
type Folders struct {
	Runtime string // node-local, perhaps in memory
	Disk    string // on a disk, created when it is needed; empty: Runtime is on a disk, or there is no other
}

// Make makes dir, which may exist, accessible only to this user.
func Make(dir string) error { return os.MkdirAll(dir, 0o700) }

// Make makes a folder of the attempt, on the disk.
func (f Folders) Make(name string) (string, error) {
	dir := f.path(name)
	return dir, Make(dir)
}

func (f Folders) path(name string) string {
	if f.Disk == "" {
		return filepath.Join(f.Runtime, name)
	}
	return filepath.Join(f.Disk, name)
}

// View makes a view with build, which makes its folder. It removes a view that fails,
// because the disk may be full.
func (f Folders) View(name string, build func(dir string) error) (string, error) {
	dir := f.path(name)
	err := Make(filepath.Dir(dir))
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return dir, err
}

// Remove removes all folders of the attempt outside its record.
func (f Folders) Remove() error {
	err := os.RemoveAll(f.Runtime)
	if f.Disk != "" {
		err = errors.Join(err, os.RemoveAll(f.Disk))
	}
	return err
}
