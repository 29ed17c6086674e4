package local

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/image"
	"github.com/berth-eval/berth/environments/local/internal/maker"
	"github.com/berth-eval/berth/plugins/environment"
)

var _ environment.Snapshotter = (*Environment)(nil)

// snapshotPrefix begins the names of snapshots. They are files without a name
// of this process, which end with it.
const snapshotPrefix = "local-snapshot:"

// snapshots are those of this process, and what each sandbox was made of.
type snapshots struct {
	mu    sync.Mutex
	all   map[string]*packed      // by name
	facts map[string]*image.Image // by name of a snapshot, or id of a sandbox
}

// made remembers what a sandbox was made of.
func (s *snapshots) made(id string, im *image.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts[id] = im
}

// forget removes what is known of a sandbox, or a snapshot. A sandbox that is
// being made of the snapshot keeps its files.
func (s *snapshots) forget(id string) {
	s.mu.Lock()
	p := s.all[id]
	delete(s.all, id)
	delete(s.facts, id)
	s.mu.Unlock()
	if p != nil {
		p.release()
	}
}

// take returns the files of a snapshot. The caller releases them.
func (s *snapshots) take(ref string) (*packed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[ref]
	if p == nil {
		return nil, fmt.Errorf("%w: %s: no such snapshot in this process", environment.ErrBadImage, ref)
	}
	p.images.mu.Lock()
	p.uses++
	p.images.mu.Unlock()
	return p, nil
}

// close forgets all of them.
func (s *snapshots) close() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, ref := range all {
		s.forget(ref)
	}
}

// of returns what a snapshot or a sandbox was made of; nil: it is not known.
func (s *snapshots) of(id string) *image.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts[id]
}

// Stop ends the processes of a sandbox and keeps its files.
func (e *Environment) Stop(_ context.Context, id string) error {
	if e.fault != nil {
		return e.fault
	}
	return contract(e.maker.Stop(id))
}

// Snapshot copies the files of a sandbox whose processes are stopped.
func (e *Environment) Snapshot(ctx context.Context, id string) (environment.Image, error) {
	if e.fault != nil {
		return environment.Image{}, e.fault
	}
	im := e.snapshots.of(id)
	if im == nil {
		return environment.Image{}, fmt.Errorf("%w: %s", environment.ErrNoSandbox, id)
	}
	f, err := e.export(ctx, id)
	if err != nil {
		return environment.Image{}, err
	}
	ref := snapshotPrefix + strings.ToLower(rand.Text()[:16])
	e.snapshots.mu.Lock()
	defer e.snapshots.mu.Unlock()
	e.snapshots.all[ref] = &packed{tar: f, images: e.images, uses: 1}
	e.snapshots.facts[ref] = &image.Image{Facts: im.Facts}
	return environment.Image{Ref: ref, Digest: im.Facts.Digest}, nil
}

// export writes the files of a sandbox to a file that has no name.
func (e *Environment) export(ctx context.Context, id string) (*os.File, error) {
	f, err := e.images.nameless("snapshot-")
	if err != nil {
		return nil, err
	}
	if err = e.maker.Export(ctx, id, f); err != nil {
		return nil, errors.Join(noRoom(f, contract(err)), f.Close())
	}
	return f, nil
}

// Changed lists the files that differ from the image and from the host's.
func (e *Environment) Changed(ctx context.Context, id string) ([]string, error) {
	if e.fault != nil {
		return nil, e.fault
	}
	im := e.snapshots.of(id)
	if im == nil {
		return nil, fmt.Errorf("%w: %s", environment.ErrNoSandbox, id)
	}
	before := map[string]string{}
	if !im.Empty() && im.Facts.Digest != "" {
		p, err := e.images.files(im)
		if err == nil {
			before, err = sums(p.file())
			p.release()
		}
		if err != nil {
			return nil, err
		}
	}
	f, err := e.export(ctx, id)
	if err != nil {
		return nil, err
	}
	now, err := sums(f)
	var names []string
	for name, sum := range now {
		if before[name] != sum {
			names = append(names, name)
		}
	}
	for name := range before { // the agent removed them
		if _, there := now[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, errors.Join(err, f.Close())
}

// sums returns what an archive has besides folders with content: kind, content or
// target of each entry, by absolute path.
func sums(f *os.File) (map[string]string, error) {
	out, filled := map[string]string{}, map[string]bool{"/": true}
	if f == nil {
		return out, nil
	}
	for r := tar.NewReader(io.NewSectionReader(f, 0, 1<<62)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			for name := range filled {
				delete(out, name)
			}
			return out, nil
		}
		if err != nil {
			return out, err
		}
		filled[path.Dir(path.Join("/", h.Name))] = true
		sum := sha256.New()
		if _, err := io.Copy(sum, r); err != nil {
			return out, err
		}
		out[path.Join("/", h.Name)] = fmt.Sprintf("%c %s %x %o", h.Typeflag, h.Linkname, sum.Sum(nil), h.Mode)
	}
}

// fills is how many bytes of files may be the cause of a full disk: one without
// room for so little was full before.
const fills = 16 << 20

// noRoom returns an error of an export to f as the contract names it, if the disk
// of f was full.
func noRoom(f *os.File, err error) error {
	if !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return err
	}
	if info, failed := f.Stat(); failed == nil && info.Size() >= fills {
		return fmt.Errorf("%w: the disk of this machine is full after %d MiB of the files of the sandbox: %w", environment.ErrRefused, info.Size()>>20, err)
	}
	return fmt.Errorf("%w: %w", environment.ErrNoCapacity, err)
}

// contract returns an error of the maker as the contract names it.
func contract(err error) error {
	switch {
	case errors.Is(err, maker.ErrNoSandbox):
		return fmt.Errorf("%w: %w", environment.ErrNoSandbox, err)
	case errors.Is(err, maker.ErrTooLarge):
		return fmt.Errorf("%w: %w", environment.ErrRefused, err)
	}
	return err
}
