package base

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// private are names of files that contain a user's or a machine's credentials
// for registries and repositories, in any folder.
var private = []string{"npmrc", ".npmrc", "pip.conf", "gitconfig", ".gitconfig", ".netrc", ".pypirc", ".git-credentials"}

// Hidden lists what a sandbox must not see of root, as paths relative to it:
// files that not every user may read, and files with private names.
func Hidden(root string) ([]string, error) {
	w := &hider{root: root, slots: make(chan struct{}, 4)}
	w.walk("")
	w.work.Wait()
	if w.err != nil {
		return nil, fmt.Errorf("look for private files in %s: %w", root, w.err)
	}
	slices.Sort(w.hidden)
	return w.hidden, nil
}

// Cover returns a layer over root that hides those paths, or nil if there are
// none.
func (s *State) Cover(root string, hidden []string) (*Copy, error) {
	if len(hidden) == 0 {
		return nil, nil
	}
	return s.get(recipe{
		kind: "cover" + strings.ReplaceAll(root, "/", "."),
		fingerprint: func() (string, error) {
			sum := sha256.Sum256([]byte(strings.Join(hidden, "\x00")))
			return hex.EncodeToString(sum[:])[:16], nil
		},
		build: func(tree string) error { return whiteouts(tree, hidden) },
	})
}

// whiteouts makes the entries that an overlay treats as deleted names.
func whiteouts(tree string, hidden []string) error {
	for _, rel := range hidden {
		at := filepath.Join(tree, rel)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
			return fmt.Errorf("hide %s: %w", rel, err)
		}
	}
	return nil
}

// hider finds the paths to hide.
type hider struct {
	root  string
	slots chan struct{}
	work  sync.WaitGroup

	mu     sync.Mutex
	hidden []string // relative to root
	err    error
}

func (h *hider) walk(rel string) {
	fd, err := unix.Open(filepath.Join(h.root, rel), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		h.fail(rel, err)
		return
	}
	dir := os.NewFile(uintptr(fd), rel)
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		h.fail(rel, err)
	}
	for _, n := range names {
		var st unix.Stat_t
		if unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue // it was removed in the meantime
		}
		name := filepath.Join(rel, n)
		isFolder := st.Mode&unix.S_IFMT == unix.S_IFDIR
		switch {
		case isFolder && st.Mode&0o005 != 0o005, st.Mode&unix.S_IFMT == unix.S_IFREG && (st.Mode&0o004 == 0 || slices.Contains(private, n)):
			h.mu.Lock()
			h.hidden = append(h.hidden, name)
			h.mu.Unlock()
		case isFolder:
			select {
			case h.slots <- struct{}{}:
				h.work.Go(func() {
					h.walk(name)
					<-h.slots
				})
			default:
				h.walk(name)
			}
		}
	}
}

// fail keeps an error, unless the file is left out for it.
func (h *hider) fail(rel string, err error) {
	if unreadable(err) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = errors.Join(h.err, fmt.Errorf("%q: %w", rel, err))
}
