package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/berth-eval/berth/environments/internal/remains"
	"github.com/berth-eval/berth/plugins/environment"
)

var _ environment.Keeper = (*Environment)(nil)

// archivesOf returns the prefix of the names of this user's loaded archives,
// because several users may share an engine.
func archivesOf() string { return archives + "u" + strconv.Itoa(os.Getuid()) + "-" }

// ours says whether an image is one that we built or loaded.
func ours(im Listed) bool {
	built := strings.HasPrefix(im.Name, builds) && im.Labels[labelUser] == strconv.Itoa(os.Getuid()) && im.Labels[labelBuild] != ""
	return built || strings.HasPrefix(im.Name, archivesOf())
}

// use marks one of our images as in use by this process: it holds a shared lock on
// a file of the image, whose time is that of the last use. gc of another process does
// not remove the image then. Call it before looking for the image, so that an image
// that is found cannot be removed afterwards.
func (e *Environment) use(ctx context.Context, r *remote, name string) error {
	mark := short(r.address, name)
	e.mu.Lock()
	known := e.uses[mark] != nil
	e.mu.Unlock()
	if known {
		return nil
	}
	dir, unlock, err := lockMarks(ctx)
	if err != nil {
		return fmt.Errorf("mark image %q as used: %w", name, err)
	}
	defer unlock()
	f, now := flock.New(markOf(dir, mark)), time.Now()
	if _, err = f.TryRLock(); err == nil { // no other process locks it while the marks are locked
		err = os.Chtimes(f.Path(), now, now)
	}
	if err != nil {
		return fmt.Errorf("mark image %q as used: %w", name, errors.Join(err, f.Close()))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.uses[mark] != nil { // of another caller meanwhile
		return f.Close()
	}
	e.uses[mark] = f
	return nil
}

func markOf(dir, mark string) string { return filepath.Join(dir, mark+".used") }

// lockMarks locks the marks on images while one is set or an image is removed.
func lockMarks(ctx context.Context) (dir string, unlock func(), err error) {
	if dir, err = Lasting(); err != nil {
		return "", nil, err
	}
	unlock, err = lockIn(ctx, dir, "images")
	return dir, unlock, err
}

// used reports whether a living process of this user has marked an image. The caller
// holds the lock on the marks.
func used(dir, mark string) (bool, error) {
	f := flock.New(markOf(dir, mark), flock.SetFlag(os.O_RDWR)) // not made again
	free, err := f.TryLock()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return !free, errors.Join(err, f.Close())
}

// Kept lists the images that were built or loaded here for this user, in all
// known engines.
func (e *Environment) Kept(ctx context.Context) ([]environment.KeptImage, error) {
	all := []environment.KeptImage{}
	err := e.everywhere(ctx, func(r *remote) error {
		kept, err := r.kept(ctx)
		all = append(all, kept...)
		return err
	})
	return all, err
}

func (r *remote) kept(ctx context.Context) ([]environment.KeptImage, error) {
	dir, unlock, err := lockMarks(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list, err := r.Images(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s list images: %w", r.name, err)
	}
	list = slices.DeleteFunc(list, func(im Listed) bool { return !ours(im) })
	if len(list) == 0 {
		return nil, nil
	}
	busy, err := r.busy(ctx, dir)
	if err != nil {
		return nil, err
	}
	kept := make([]environment.KeptImage, len(list))
	for i, im := range list {
		mark := short(r.address, im.Name)
		kept[i] = environment.KeptImage{Ref: r.id(im.Name), SizeMiB: remains.MiB(im.Size), Used: im.Created}
		if kept[i].InUse, err = busy(mark, im.ID); err != nil {
			return nil, err
		}
		if info, err := os.Stat(markOf(dir, mark)); err == nil && (info.ModTime().After(im.Created) || strings.HasPrefix(im.Name, archives)) {
			kept[i].Used = info.ModTime()
		}
		kept[i].Used = kept[i].Used.UTC().Truncate(time.Millisecond)
	}
	return kept, nil
}

// bare is an ID without the name of its hash, which not every list has.
func bare(id string) string { return strings.TrimPrefix(id, "sha256:") }

// Drop removes one of Kept.
func (e *Environment) Drop(ctx context.Context, ref string) (bool, error) {
	r, name, err := e.of(ref)
	if err != nil {
		return false, err
	}
	free, err := r.slot(ctx)
	if err != nil {
		return false, err
	}
	defer free()
	dir, unlock, err := lockMarks(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	im, err := r.Inspect(ctx, name)
	if errors.Is(err, ErrAbsent) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s image: %w", r.name, err)
	}
	if !ours(Listed{Name: name, Labels: im.Labels}) {
		return false, nil
	}
	mark := short(r.address, name)
	busy, err := r.busy(ctx, dir)
	if err != nil {
		return false, err
	}
	if inUse, failed := busy(mark, im.ID); inUse || failed != nil {
		return false, failed
	}
	err = r.RemoveImage(ctx, name)
	if errors.Is(err, ErrAbsent) || errors.Is(err, ErrInUse) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s remove image: %w", r.name, err)
	}
	r.mu.Lock()
	clear(r.known)
	delete(r.done, name)
	r.mu.Unlock()
	_ = os.Remove(markOf(dir, mark))
	return true, nil
}

// busy returns a function that reports whether an image is in use, by its mark
// and ID. The caller holds the lock on the marks in dir.
func (r *remote) busy(ctx context.Context, dir string) (func(mark, id string) (bool, error), error) {
	containers, err := r.Containers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("%s list: %w", r.name, err)
	}
	ids := map[string]bool{}
	for _, c := range containers {
		ids[bare(c.Image)] = true
	}
	return func(mark, id string) (bool, error) {
		if ids[bare(id)] {
			return true, nil
		}
		return used(dir, mark)
	}, nil
}

// everywhere calls f with every known engine: the default one, and those at
// other addresses that were used and still have a socket.
func (e *Environment) everywhere(ctx context.Context, f func(*remote) error) error {
	addresses := remembered(e.o.Name)
	if address, err := e.o.Default(); err == nil && !slices.Contains(addresses, address) {
		addresses = append(addresses, "")
	}
	for _, address := range addresses {
		r, err := e.at(Config{Socket: address})
		if err != nil {
			return err
		}
		if err = f(r); err != nil && address != "" && ctx.Err() == nil {
			continue // a socket left by an engine that is gone
		}
		if err != nil {
			return err
		}
	}
	return nil
}
