package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// Lock reserves a folder for this process among all processes of this user on
// this machine. The kernel releases it however the process ends.
type Lock struct {
	lock *flock.Flock
}

// HeldError says that another process holds a lock.
type HeldError struct {
	Path string
	By   Process // zero when it has not written its name yet
}

// Error names the holder.
func (e *HeldError) Error() string {
	if e.By.PID == 0 {
		return fmt.Sprintf("%s is in use by another berth", e.Path)
	}
	return fmt.Sprintf("%s is in use by berth with %s", e.Path, e.By)
}

// Acquire locks the folder path, or fails with a *HeldError.
func Acquire(path string) (*Lock, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if resolved, err = filepath.Abs(resolved); err != nil {
		return nil, err
	}
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, locksDir)
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return nil, &FolderError{Dir: dir, Err: err}
	}
	sum := sha256.Sum256([]byte(resolved))
	file := filepath.Join(dir, hex.EncodeToString(sum[:8]))
	l := &Lock{}
	for tries := 0; l.lock == nil; tries++ {
		if l.lock, err = try(file); err != nil {
			return nil, &FolderError{Dir: dir, Err: err}
		}
		if l.lock != nil {
			break
		}
		held := &HeldError{Path: path, By: holder(file)}
		// A dead process holds no lock: another process is sweeping, or is just
		// taking it.
		if tries == sweepTries || held.By.State() != Dead {
			return nil, held
		}
		time.Sleep(sweepWait)
	}
	b, err := json.Marshal(Self())
	if err == nil {
		// Written in place, because the name of the file must stay with its
		// lock.
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		_ = l.Release()
		return nil, &FolderError{Dir: dir, Err: err}
	}
	return l, nil
}

// FolderError says that a lock cannot be stored in the runtime folder, because
// it is full or not writable.
type FolderError struct {
	Dir string
	Err error
}

// Error says what to do.
func (e *FolderError) Error() string {
	return fmt.Sprintf("a lock in the runtime folder: %v: make room in %s, or set %s to your own short path on a local disk", e.Err, e.Dir, EnvDir)
}

// Unwrap returns the cause.
func (e *FolderError) Unwrap() error { return e.Err }

// How often, and how long each time, to wait for a lock that only a sweeper can
// hold.
const (
	sweepTries = 100
	sweepWait  = 10 * time.Millisecond
)

// try locks file, or returns nil when another process holds it. If the file was
// removed before it was locked, try starts over, because another process may
// hold the new file of that name.
func try(file string) (*flock.Flock, error) {
	for {
		l := flock.New(file)
		ok, err := l.TryLock()
		if err != nil || !ok {
			return nil, err
		}
		if named(l) {
			return l, nil
		}
		if err = l.Unlock(); err != nil {
			return nil, err
		}
	}
}

// named reports whether the locked file still has its name.
func named(l *flock.Flock) bool {
	mine, err := l.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.Path())
	return err == nil && os.SameFile(mine, there)
}

// holder returns the process that wrote its name into a lock; zero when none
// did.
func holder(file string) (by Process) {
	if b, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(b, &by) // a name that is not written yet stays zero
	}
	return by
}

// remove removes the file of a lock, which only its holder may do, and releases
// the lock.
func remove(l *flock.Flock) error {
	var err error
	if named(l) {
		err = os.Remove(l.Path())
	}
	return errors.Join(err, l.Unlock())
}

// Release releases the lock.
func (l *Lock) Release() error {
	if !l.lock.Locked() {
		return nil
	}
	return remove(l.lock)
}

// sweepLocks removes the files of locks whose processes were killed.
func sweepLocks(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, locksDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		file := filepath.Join(dir, locksDir, e.Name())
		if !e.Type().IsRegular() || holder(file).State() != Dead {
			continue // also if the holder has not written its name yet
		}
		l, tryErr := try(file)
		if err = errors.Join(err, tryErr); l != nil {
			err = errors.Join(err, remove(l))
		}
	}
	return err
}
