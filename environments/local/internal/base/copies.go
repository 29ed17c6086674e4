package base

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A copy is a tree that is made from the host once and then only read. It gets
// its name only when it is complete. The name contains a fingerprint of the
// host's state:
//
//	<kind>-<fingerprint>/  tree/  lock
//
// Users of a copy hold a shared lock on it, so that no process removes folders
// that are layers of a mounted overlay.

// Copy is one copy in use.
type Copy struct {
	Path string // of the tree
	lock *os.File
}

// Close releases the copy.
func (c *Copy) Close() error { return c.lock.Close() }

// recipe is how to make one kind of copy.
type recipe struct {
	kind        string
	fingerprint func() (string, error)
	build       func(tree string) error // fills the empty folder tree
}

// get returns the copy of r for the current state of the host. It makes the
// copy if it is missing or out of date.
func (s *State) get(r recipe) (*Copy, error) {
	mark, err := r.fingerprint()
	if err != nil {
		return nil, fmt.Errorf("%s: look at the host: %w", r.kind, err)
	}
	name := filepath.Join(s.base, r.kind+"-"+mark)
	if c, openErr := open(name); openErr == nil {
		return c, nil
	}
	// One process builds at a time. The others then find its copy.
	turn, err := lock(filepath.Join(s.base, r.kind+".lock"), unix.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.kind, err)
	}
	defer turn.Close()
	if c, openErr := open(name); openErr == nil {
		return c, nil
	}
	if err = s.build(r, name); err != nil {
		return nil, fmt.Errorf("%s: %w", r.kind, err)
	}
	s.removeOthers(r.kind, name)
	c, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("%s was made and cannot be used: %w", r.kind, err)
	}
	return c, nil
}

// open locks a copy.
func open(name string) (*Copy, error) {
	l, err := lock(filepath.Join(name, "lock"), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	tree := filepath.Join(name, "tree")
	if _, err := os.Stat(tree); err != nil { // it was removed while we waited
		return nil, errors.Join(err, l.Close())
	}
	return &Copy{tree, l}, nil
}

// build makes the copy under a temporary name and renames it.
func (s *State) build(r recipe, name string) (err error) {
	tmp, err := os.MkdirTemp(s.base, r.kind+"-new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	tree := filepath.Join(tmp, "tree")
	if err = os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if err = errors.Join(r.build(tree), os.WriteFile(filepath.Join(tmp, "lock"), nil, 0o600)); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// removeOthers removes copies of older states of the host that are not in use.
// Copies that cannot be removed now are removed another time.
func (s *State) removeOthers(kind, keep string) {
	all, err := filepath.Glob(filepath.Join(s.base, kind+"-*"))
	if err != nil {
		return
	}
	for _, dir := range all {
		if dir == keep {
			continue
		}
		l, err := lock(filepath.Join(dir, "lock"), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			continue // in use
		}
		_ = os.RemoveAll(dir)
		if l != nil {
			_ = l.Close()
		}
	}
}

// lock opens path, or makes it if its folder exists, and locks it.
func lock(path string, how int) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	for {
		err = unix.Flock(fd, how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}
