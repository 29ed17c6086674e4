package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/runtimedir"
)

// maxSocketDir is the longest path of the folder for sockets, in bytes: the
// path of a Unix socket is limited to 107 bytes, and each process has a folder
// and a socket name below it.
const maxSocketDir = 60

// socketDir is the private folder for the sockets of one host.
type socketDir struct {
	path string
	lock *os.File // held while the host exists
}

// The socket folders are in a subfolder of the runtime folder. In the folder
// for temporary files, which others use too, their names begin with the prefix.
const (
	socketsDir   = "s"
	socketPrefix = "berth-plugins-"
	lockName     = "lock"
)

// openSockets makes a folder and removes the folders that dead hosts left
// behind.
func openSockets() (*socketDir, error) {
	base, prefix, err := socketBase()
	if err != nil {
		return nil, fmt.Errorf("folder for plugin sockets: %w", err)
	}
	sweep(base, prefix)
	for range 10 {
		var d *socketDir
		if d, err = makeSockets(base, prefix); err == nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("folder for plugin sockets: %w", err)
}

// socketBase returns the parent of socket folders: in the runtime folder, or
// the folder for temporary files if there is none, which is enough to list
// plugins or to clean up.
func socketBase() (base, prefix string, err error) {
	if base, err = runtimedir.Dir(); err == nil {
		base = filepath.Join(base, socketsDir)
		return base, "", runtimedir.Make(base)
	}
	base = os.TempDir()
	if len(filepath.Join(base, socketPrefix+"1234567890")) > maxSocketDir {
		base = "/tmp"
	}
	return base, socketPrefix, nil
}

// makeSockets fails if another process that sweeps removes the new folder
// before it is locked.
func makeSockets(base, prefix string) (*socketDir, error) {
	path, err := os.MkdirTemp(base, prefix)
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(path, os.O_CREATE)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	held, err := lock.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(lock.Name()); err == nil && !os.SameFile(held, there) {
			err = fmt.Errorf("%s was replaced", lock.Name())
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &socketDir{path: path, lock: lock}, nil
}

func lockFile(dir string, flag int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// sweep removes folders of hosts that were killed: nothing holds their lock any
// more. It also removes an empty folder without a lock; a host that was about to
// lock it makes another one (makeSockets). A folder that has something else, such
// as the socket of a plugin that outlived its host for a moment, is removed later.
func sweep(base, prefix string) {
	old, err := filepath.Glob(filepath.Join(base, prefix+"*"))
	if err != nil {
		return
	}
	for _, path := range old {
		if runtimedir.Make(path) != nil { // it exists and belongs to another user
			continue
		}
		lock, err := lockFile(path, 0)
		switch {
		case err == nil:
			_ = removeSockets(path)
			_ = lock.Close()
		case errors.Is(err, fs.ErrNotExist) && aged(path):
			_ = os.RemoveAll(path)
		case errors.Is(err, fs.ErrNotExist):
			_ = os.Remove(path)
		}
	}
}

// aged reports whether nothing was created in a folder for a minute. A host locks
// its own at once.
func aged(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && time.Since(info.ModTime()) > time.Minute
}

// removeSockets removes a folder. The lock goes last: if this process is killed
// before that, another one still finds the folder by it.
func removeSockets(path string) error {
	list, err := os.ReadDir(path)
	for _, e := range list {
		if e.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, e.Name())))
		}
	}
	return errors.Join(err, os.RemoveAll(path))
}

func (s *socketDir) close(log zerolog.Logger) {
	if err := removeSockets(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn().Err(err).Msg("folder for plugin sockets stays")
	}
	_ = s.lock.Close()
}
