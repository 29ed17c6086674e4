// Package host is the host's side of a sandbox: the control folder through
// which sandboxd connects, the connections, and every call that the core may
// make. It is in plugins/ and not in the core because the conformance kit of
// environments needs it.
//
// It must not trust anything that comes from a sandbox, must never connect into
// one, and makes no decision about an attempt.
package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Names in a control folder, which a sandbox sees as /berth.
const (
	binaryName = "sandboxd"
	socketName = "sock"
)

// maxPath is the longest path of a Unix socket, in bytes, with a margin.
const maxPath = 100

// Folder is a control folder: what a sandbox sees, read-only, as /berth. It
// holds sandboxd and, until Connect, the socket that sandboxd dials.
type Folder struct {
	Path     string
	listener *net.UnixListener
}

// NewFolder makes a control folder at path, which must not exist. Other users
// must have no access to its parent (0700), because every user id can write to
// the socket: the sandbox's ids differ from ours. sandboxd is the path of the
// binary, best the copy made by Install, so that a hard link suffices and all
// sandboxes share its memory pages.
func NewFolder(path, sandboxd string) (_ *Folder, err error) {
	socket := filepath.Join(path, socketName)
	if len(socket) > maxPath {
		return nil, fmt.Errorf("control folder %q: a socket in it has a path of %d bytes, %d are allowed: choose a shorter runtime folder",
			path, len(socket), maxPath)
	}
	if err = checkParent(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("control folder %q: %w", path, err)
	}
	if err = os.Mkdir(path, 0o711); err != nil {
		return nil, fmt.Errorf("control folder: %w", err)
	}
	f := &Folder{Path: path}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("control folder %q: %w", path, err), f.Close())
		}
	}()
	if err = place(sandboxd, filepath.Join(path, binaryName)); err != nil {
		return nil, err
	}
	if f.listener, err = listen(socket); err != nil {
		return nil, err
	}
	return f, os.Chmod(path, 0o711) // independent of the umask
}

// listen listens on a socket that every user id can connect to: the sandbox's ids differ
// from ours.
func listen(socket string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err == nil {
		if err = os.Chmod(socket, 0o666); err != nil { //nolint:gosec // as above
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("control folder: %w", err)
	}
	return l, nil
}

// Again listens once more in a folder whose socket Connect has removed, for a
// test that nothing in the sandbox connects a second time.
func (f *Folder) Again() (*net.UnixListener, error) { return listen(filepath.Join(f.Path, socketName)) }

// checkParent refuses a place where the folder would be open to others, or
// where sandboxd could not be executed.
func checkParent(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %v, want a folder of mode 0700", dir, info.Mode())
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	if fs.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%s is mounted noexec: choose a runtime folder on another file system", dir)
	}
	return nil
}

// place links from to to, or copies if a link is not possible: across file
// systems, or where protected_hardlinks forbids a link to another user's file.
func place(from, to string) error {
	if os.Link(from, to) == nil {
		info, err := os.Stat(to)
		if err != nil {
			return err
		}
		if info.Mode().Perm() == 0o555 {
			return nil
		}
		if err := os.Remove(to); err != nil { // changing the mode would also change the original
			return err
		}
	}
	return copyFile(from, to)
}

// copyFile copies a program. No process is started meanwhile: it would hold the
// copy open for writing until its exec, and executing the copy would fail with
// ETXTBSY.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o555)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o555), out.Close())
}

// Install puts one copy of sandboxd, named by its SHA-256 digest, into dir
// (which it makes, 0700) and returns its path and digest. It does nothing if
// the copy is there. Several processes may do it at once.
func Install(dir, sandboxd string) (path, digest string, err error) {
	in, err := os.Open(sandboxd)
	if err != nil {
		return "", "", fmt.Errorf("install sandboxd: %w", err)
	}
	defer in.Close()
	h := sha256.New()
	if _, err = io.Copy(h, in); err != nil {
		return "", "", fmt.Errorf("install sandboxd: %w", err)
	}
	digest = hex.EncodeToString(h.Sum(nil))
	path = filepath.Join(dir, binaryName+"-"+digest[:16])
	if info, missing := os.Stat(path); missing == nil && info.Mode().Perm() == 0o555 {
		return path, digest, nil
	}
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("install sandboxd: %w", err)
	}
	tmp := fmt.Sprintf("%s.%d.%d", path, os.Getpid(), time.Now().UnixNano())
	if err = copyFile(sandboxd, tmp); err == nil {
		err = os.Rename(tmp, path) // the file appears complete or not at all
	}
	if err != nil {
		return "", "", errors.Join(fmt.Errorf("install sandboxd: %w", err), os.RemoveAll(tmp))
	}
	return path, digest, nil
}

// Close ends the listener, if Connect has not done so, and removes the folder.
func (f *Folder) Close() error {
	if f.listener != nil {
		_ = f.listener.Close()
	}
	// Usually there is nothing else in it, and two calls are enough.
	if os.Remove(filepath.Join(f.Path, binaryName)) == nil && os.Remove(f.Path) == nil {
		return nil
	}
	if err := os.RemoveAll(f.Path); err != nil {
		return fmt.Errorf("remove control folder: %w", err)
	}
	return nil
}
