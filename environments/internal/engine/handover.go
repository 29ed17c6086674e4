package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/environment"
)

// handover is a snapshot of a stopped sandbox that is not copied: the sandbox that
// is made on it gets the folder in which the engine keeps what was written. Both
// containers have the same image below that folder, and no file is read or
// written. An engine takes as long to make an image as to make a sandbox.
//
// This works where the engine uses overlay on this machine, and its folders
// belong to this user. Elsewhere the engine copies the files.
type handover struct {
	ref     string // the name of the snapshot
	sandbox string // id of the stopped one
	from    string // its container
	files   string // its folder
	written int64  // bytes in it
	used    environment.Remains

	mu     sync.Mutex
	over   bool         // the files were handed over or copied, or are not wanted
	copied bool         // the engine has an image of that name
	unused atomic.Bool  // Destroy of the stopped sandbox was called before that
	remove func() error // removes its container, once, and waits for the end
}

// handOver makes a snapshot h of a sandbox b whose files will be handed over, and
// reports whether that is possible.
func (e *Environment) handOver(ctx context.Context, r *remote, b box, h *handover) bool {
	if b.used == nil || b.files == "" || b.image == "" || len(b.parts.containers)+len(b.parts.volumes) > 0 {
		return false // it runs, or it has more than this folder
	}
	folder, _, err := ownFolder(b.files)
	if err != nil {
		return false
	}
	_ = folder.Close() // it was only looked at
	h.files, h.used = b.files, *b.used
	h.remove = sync.OnceValue(func() error {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		err := r.clean(bounded, h.from)
		e.mu.Lock()
		delete(e.boxes, h.sandbox)
		e.mu.Unlock()
		return err
	})
	r.mu.Lock()
	r.handed[h.ref] = h
	r.mu.Unlock()
	return true
}

// handover returns the snapshot of that reference, or nil if its files were not to
// be handed over.
func (r *remote) handover(ref string) *handover {
	name, _, _ := strings.Cut(ref, "@")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handed[name]
}

// handoverFrom returns the snapshot that needs the files of a container, or nil.
func (r *remote) handoverFrom(container string) *handover {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.handed {
		if h.from == container {
			return h
		}
	}
	return nil
}

// listed is the name by which a container is listed: that of a snapshot, if only
// that needs it.
func (r *remote) listed(container string) string {
	if h := r.handoverFrom(container); h != nil && h.unused.Load() {
		return h.ref
	}
	return container
}

// make creates a container. One on a handover gets the files of the snapshot.
func (e *Environment) make(ctx context.Context, r *remote, c Container) error {
	h := c.on
	if h == nil {
		return r.Create(ctx, c)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return fmt.Errorf("%w: the files of the snapshot were handed over to another sandbox", environment.ErrNoSandbox)
	}
	if err := r.Create(ctx, c); err != nil {
		return err
	}
	to, failed := r.folder(ctx, c.Name)
	if failed == nil {
		failed = exchange(h.files, to)
	}
	if failed != nil { // what cannot be handed over is copied
		if err := h.copy(ctx, r, c); err != nil {
			return fmt.Errorf("%w (its files cannot be handed over: %w)", err, failed)
		}
	}
	h.over = true
	switch {
	case h.unused.Load(): // an engine unmounts it sooner to remove it than by itself
		_ = h.remove() // drop returns its error
		return nil
	case failed != nil:
		return nil
	}
	return r.Unmount(ctx, h.from) // so that one mount alone has the files
}

// folder returns the folder of a container with the files that were written in it.
func (r *remote) folder(ctx context.Context, name string) (string, error) {
	s, err := r.State(ctx, name)
	if err == nil && s.Files == "" {
		err = errors.New("the engine does not say where it keeps the files")
	}
	return s.Files, err
}

// copy replaces a new container by one on an image of the stopped one.
func (h *handover) copy(ctx context.Context, r *remote, c Container) error {
	if err := r.clean(ctx, c.Name); err != nil {
		return err
	}
	im, err := r.commit(ctx, h.from, h.ref, h.written)
	if err != nil {
		return err
	}
	h.copied, c.Image = true, im.ID
	return r.Create(ctx, c)
}

// later reports whether the container of a sandbox is only removed when its files
// have been handed over.
func (h *handover) later() bool {
	h.unused.Store(true)
	h.mu.Lock() // while a sandbox is made, this takes until it has the files
	defer h.mu.Unlock()
	if h.over {
		h.unused.Store(false)
	}
	return !h.over
}

// drop forgets the snapshot, and waits until the stopped sandbox has been removed,
// if it was to be. It reports whether the engine has an image.
func (h *handover) drop(r *remote) (copied bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.unused.Load() {
		err = h.remove()
	}
	r.mu.Lock()
	delete(r.handed, h.ref)
	r.mu.Unlock()
	return h.copied, err
}

// exchange exchanges two folders. Moving a folder changes its entry "..", for
// which its owner needs the permission to write to it.
func exchange(a, b string) (err error) {
	for _, path := range []string{a, b} {
		dir, mode, err := ownFolder(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		if mode&unix.S_IWUSR != 0 {
			continue
		}
		fd := int(dir.Fd())
		if err = unix.Fchmod(fd, mode|unix.S_IWUSR); err != nil {
			return err
		}
		defer func() { _ = unix.Fchmod(fd, mode) }() // its owner may
	}
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// ownFolder opens a folder of this user, and returns its permissions.
func ownFolder(path string) (_ *os.File, mode uint32, err error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(dir.Fd()), &st); err == nil && os.Geteuid() != 0 && int(st.Uid) != os.Geteuid() {
		err = fmt.Errorf("%s belongs to user %d", path, st.Uid)
	}
	if err != nil {
		return nil, 0, errors.Join(err, dir.Close())
	}
	return dir, st.Mode &^ unix.S_IFMT, nil
}
