package bundler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// Copies are copies of bundles on a disk of this machine, for processes that share
// them. Each bundle is in a folder that is named by its digest, so bundles of one name
// and different content can be used at the same time. A folder for each choice of
// bundles has links to them.
type Copies struct {
	dir  string
	held *os.File // locked, shared
}

// HoldCopies makes the folder dir, if there is none, and keeps others from removing
// it until Close. It waits while another process removes it.
func HoldCopies(ctx context.Context, dir string) (*Copies, error) {
	for {
		if err := runtimedir.Make(dir); err != nil {
			return nil, err
		}
		f, err := lockFolder(dir, unix.LOCK_SH)
		if err != nil {
			return nil, err
		}
		if f != nil {
			return &Copies{dir: dir, held: f}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Close lets others remove the copies.
func (c *Copies) Close() error { return c.held.Close() }

// lockFolder locks a folder; nil without an error: another process has it, or it has
// lost its name.
func lockFolder(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB); errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.EOPNOTSUPP) {
		err = nil // this file system has no locks
	}
	is, failed := f.Stat()
	named, gone := os.Lstat(dir)
	if err == nil && failed == nil && gone == nil && os.SameFile(is, named) {
		return f, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(gone, fs.ErrNotExist) {
		err = nil
	}
	return nil, errors.Join(err, failed, f.Close())
}

// Use returns a folder of bundles, as of [bundle.Dir], with copies of all. Each is
// copied once, by the first process that needs it, and its content is compared with
// its digest. The folder stays valid until Close.
func (c *Copies) Use(ctx context.Context, all []bundle.Bundle) (dir string, err error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b bundle.Bundle) int { return strings.Compare(a.ID(), b.ID()) })
	name := sha256.New()
	for _, b := range all {
		err = c.copy(ctx, b)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = noRoom(err)
		}
		if err != nil {
			return "", fmt.Errorf("copy bundle %s to %s: %w", b.ID(), c.dir, err)
		}
		fmt.Fprintf(name, "%s %s\n", b.ID(), b.Digest)
	}
	dir = filepath.Join(c.dir, "choice-"+hex.EncodeToString(name.Sum(nil)))
	work, done, err := workIn(c.dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	links := filepath.Join(work, "links")
	if err = os.Mkdir(links, 0o755); err != nil {
		return "", err
	}
	for _, b := range all {
		if err = os.Symlink(filepath.Join("..", byDigest(b), b.ID()), filepath.Join(links, b.ID())); err != nil {
			return "", err
		}
	}
	if err = os.Rename(links, dir); errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		err = nil // it was there, with the same links
	}
	return dir, err
}

// byDigest is the name of the folder for a bundle.
func byDigest(b bundle.Bundle) string { return strings.ReplaceAll(b.Digest, ":", "-") }

// copy copies one bundle, unless a whole copy is there.
func (c *Copies) copy(ctx context.Context, b bundle.Bundle) (err error) {
	if sum, ok := strings.CutPrefix(b.Digest, "sha256:"); !ok || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
		return fmt.Errorf("its manifest has no digest: %q", b.Digest)
	}
	dir := filepath.Join(c.dir, byDigest(b))
	unlock, err := lock(ctx, dir, b.ID())
	if err != nil {
		return err
	}
	defer unlock()
	if old, missing := bundle.Open(dir, b.Name, b.Version); missing == nil && old.Digest == b.Digest && old.Verify() == nil {
		return nil
	}
	work, done, err := workIn(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	whole := filepath.Join(work, "whole")
	if err = os.CopyFS(whole, os.DirFS(b.Folder)); err == nil {
		err = forEverybody(whole)
	}
	if err != nil {
		return err
	}
	if err = (bundle.Bundle{Manifest: b.Manifest, Folder: whole}).Verify(); err != nil {
		return err
	}
	_, err = settle(dir, work, b.Manifest)
	return err
}

func noRoom(err error) error {
	return fmt.Errorf("the disk is full: %w: name another folder with scratch, or remove copy_bundles, in the executor block", err)
}

// SweepCopies removes the folder of copies that no process holds, and returns its
// path. If dry, it removes nothing.
func SweepCopies(dir string, dry bool) ([]string, error) {
	f, err := lockFolder(dir, unix.LOCK_EX)
	if f == nil {
		return nil, err
	}
	if !dry {
		err = remove(dir)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return []string{dir}, nil
}
