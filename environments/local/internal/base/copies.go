package base

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A copy is a tree that is made from the host once and then only read. It gets
// its name only when it is complete. The name contains a fingerprint of the
// host's state:
//
//	<kind>-<fingerprint>/  tree/  list (every path of tree)  lock
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
	// build fills the empty folder tree and writes each path that it makes,
	// relative to tree, as a line of list.
	build func(tree string, list *bufio.Writer) error
}

// get returns the copy of r for the current state of the host. It makes the
// copy if it is missing, out of date or damaged.
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

// open locks a copy and checks that it is complete.
func open(name string) (*Copy, error) {
	l, err := lock(filepath.Join(name, "lock"), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	tree := filepath.Join(name, "tree")
	if err := complete(tree, filepath.Join(name, "list")); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Copy{tree, l}, nil
}

// complete checks that each path of list exists below tree. It takes 30 ms for
// the 17,000 folders of a skeleton, once per process.
func complete(tree, list string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	body, ended := strings.CutSuffix(string(text), endOfList)
	if !ended {
		return fmt.Errorf("%s is cut off", list)
	}
	dir, err := unix.Open(tree, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	for line := range strings.Lines(body) {
		path := strings.TrimSuffix(line, "\n")
		var st unix.Stat_t
		if err := unix.Fstatat(dir, path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("%s/%s: %w", tree, path, err)
		}
	}
	return nil
}

const endOfList = "\x00end\n"

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
	f, err := os.Create(filepath.Join(tmp, "list"))
	if err != nil {
		return err
	}
	list := bufio.NewWriter(f)
	err = r.build(tree, list)
	_, errEnd := list.WriteString(endOfList)
	if err = errors.Join(err, errEnd, list.Flush(), f.Close()); err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(tmp, "lock"), nil, 0o600); err != nil {
		return err
	}
	// Rename a damaged copy instead of removing it, because a sandbox may still
	// use it as a layer.
	dead, err := os.MkdirTemp(s.base, r.kind+"-dead-")
	if err != nil {
		return err
	}
	if err := os.Rename(name, filepath.Join(dead, "was")); err != nil && !errors.Is(err, os.ErrNotExist) {
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
		inner := dir
		if strings.Contains(filepath.Base(dir), "-dead-") {
			inner = filepath.Join(dir, "was")
		}
		l, err := lock(filepath.Join(inner, "lock"), unix.LOCK_EX|unix.LOCK_NB)
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
