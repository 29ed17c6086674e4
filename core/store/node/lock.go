package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// Lock keeps a folder for this process among all processes of this user on
// this machine. The kernel opens it however the process ends.
type Lock struct {
	lock *flock.Flock
}

// HeldError says that another process holds a lock.
type HeldError struct {
	Path string
	By   Process // zero when it did not write its name yet
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
		return nil, fmt.Errorf("runtime folder: %w", err)
	}
	sum := sha256.Sum256([]byte(resolved))
	file := filepath.Join(dir, hex.EncodeToString(sum[:8]))
	l := &Lock{lock: flock.New(file)}
	ok, err := l.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !ok {
		held := &HeldError{Path: path}
		if b, readErr := os.ReadFile(file); readErr == nil {
			_ = json.Unmarshal(b, &held.By) // a name that is not written yet stays zero
		}
		return nil, held
	}
	b, err := json.Marshal(Self())
	if err == nil {
		// In place: the name of the file must stay with the lock on it.
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		_ = l.Release()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l, nil
}

// Release opens the lock. The file stays: removing it would let two processes
// hold two files of the same name.
func (l *Lock) Release() error { return l.lock.Unlock() }
