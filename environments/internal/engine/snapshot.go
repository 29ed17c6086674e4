package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/environment"
)

// snapshots is what the names of images begin with that Snapshot makes.
const snapshots = "localhost/berth/snapshot:"

// snapshotBytes is how many bytes of files a sandbox may have besides its image
// when a snapshot of it is made: an agent could fill the disk of the engine with
// a second copy.
const snapshotBytes = 4 << 30

// Snapshot makes an image of a stopped sandbox.
func (e *Environment) Snapshot(ctx context.Context, id string) (environment.Image, error) {
	r, name, err := e.of(id)
	if err != nil {
		return environment.Image{}, err
	}
	free, err := r.slot(ctx)
	if err != nil {
		return environment.Image{}, err
	}
	defer free()
	e.mu.Lock()
	b := e.boxes[id]
	e.mu.Unlock()
	written, err := r.written(ctx, name, b.files)
	if err != nil {
		return environment.Image{}, fmt.Errorf("%s inspect: %w", r.name, gone(err))
	}
	if written > snapshotBytes {
		return environment.Image{}, fmt.Errorf("%w: the files that were written in the sandbox have %d MiB; a snapshot holds %d MiB at most",
			environment.ErrRefused, written>>20, snapshotBytes>>20)
	}
	ref := snapshots + strings.TrimPrefix(newName(), "berth-")
	if err = r.Commit(ctx, name, ref); err != nil {
		return environment.Image{}, fmt.Errorf("%s commit: %w", r.name, noRoom(written, gone(err)))
	}
	im, err := r.image(ctx, ref) // the sandbox that is made of it finds it in the cache
	if err != nil {
		return environment.Image{}, fmt.Errorf("snapshot: %w", err)
	}
	r.mu.Lock()
	r.taken[ref] = im.ID
	r.mu.Unlock()
	return environment.Image{Ref: r.id(ref), Digest: im.ID}, nil
}

// Changed lists the paths that differ from the image.
func (e *Environment) Changed(ctx context.Context, id string) ([]string, error) {
	r, name, err := e.of(id)
	if err != nil {
		return nil, err
	}
	paths, err := r.Changed(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s changes: %w", r.name, gone(err))
	}
	slices.Sort(paths)
	return paths, nil
}

func (r *remote) dropSnapshot(ctx context.Context, ref string) error {
	r.mu.Lock()
	delete(r.known, r.taken[ref])
	delete(r.taken, ref)
	r.mu.Unlock()
	if err := r.RemoveImage(ctx, ref); err != nil && !errors.Is(err, ErrAbsent) {
		return fmt.Errorf("%s remove image: %w", r.name, err)
	}
	return nil
}

// fills is how many bytes of files may be the cause of a full disk: one without
// room for so little was full before.
const fills = 16 << 20

// noRoom is err as the contract says it, if the disk of the engine was full while
// a sandbox was copied in which so many bytes were written.
func noRoom(written int64, err error) error {
	switch {
	case !strings.Contains(err.Error(), "no space left on device"):
		return err
	case written >= fills:
		return fmt.Errorf("%w: the files that were written in the sandbox have %d MiB: %w", environment.ErrRefused, written>>20, err)
	default:
		return fmt.Errorf("%w: %w", environment.ErrNoCapacity, err)
	}
}

// gone is err as the contract says it.
func gone(err error) error {
	if errors.Is(err, ErrAbsent) {
		return fmt.Errorf("%w: %w", environment.ErrNoSandbox, err)
	}
	return err
}
