package engine

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/berth-eval/berth/plugins/runtimedir"
)

// folder is what is ours in a runtime folder.
const folder = "engines"

// Place returns a folder of this user on node-local disk for locks and for data
// that must survive a crash. Locks do not work on every network file system,
// and home folders often are on one.
func Place() (string, error) {
	dir, err := runtimedir.Dir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, folder)
	return dir, runtimedir.Make(dir)
}

// Lasting returns a folder like Place that is the same for all sessions and
// jobs of this user, whatever their environment variables, because they may
// share an engine. It holds the marks on images.
func Lasting() (string, error) {
	dir, err := runtimedir.Lasting()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, folder)
	return dir, runtimedir.Make(dir)
}

// usable reports why these folders cannot be used, by writing to them.
func usable() error {
	for _, find := range []func() (string, error){Place, Lasting} {
		dir, err := find()
		if err == nil {
			err = runtimedir.Writable(dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lock holds a name against every process of this user on this machine.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	dir, err := Place()
	if err != nil {
		return nil, err
	}
	return lockIn(ctx, dir, name)
}

func lockIn(ctx context.Context, dir, name string) (unlock func(), err error) {
	f := flock.New(filepath.Join(dir, name+".lock"))
	if _, err := f.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // the file stays: another may wait for it
}

// remember records that an engine at an address other than the default was
// used, so that gc finds what was created there.
func remember(plugin, address string) {
	if slices.Contains(remembered(plugin), address) {
		return
	}
	dir, err := Place()
	if err != nil {
		return // gc will not know; the lease ends the sandboxes nevertheless
	}
	f, err := os.OpenFile(filepath.Join(dir, plugin+".sockets"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(address + "\n") // as above
	_ = f.Close()
}

// remembered are the addresses that still have a socket.
func remembered(plugin string) []string {
	dir, err := Place()
	if err != nil {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, plugin+".sockets"))
	if err != nil {
		return nil
	}
	defer f.Close()
	var all []string
	for s := bufio.NewScanner(f); s.Scan(); {
		p, err := SocketPath(s.Text())
		if err != nil || slices.Contains(all, s.Text()) {
			continue
		}
		if _, err := os.Stat(p); err == nil {
			all = append(all, s.Text())
		}
	}
	return all
}
