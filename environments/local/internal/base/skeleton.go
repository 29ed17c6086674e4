package base

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Skeleton returns a copy of only the folders of root, without files. As the
// topmost lower layer it makes every folder of the host appear as ours, and so
// writable, to an ordinary user. Without it, that user's overlay of /usr would
// show folders of an id that does not exist inside. Host files stay as they
// are: they can be replaced and hidden, not changed in place.
//
// It takes seconds the first time (17,000 folders, 68 MiB on ext4). A folder
// that was made after the skeleton is only not writable.
func (s *State) Skeleton(root string) (*Copy, error) {
	return s.get(recipe{
		kind:        "skeleton" + strings.ReplaceAll(root, "/", "."),
		fingerprint: func() (string, error) { return folderPrint(root) },
		build: func(tree string, list *bufio.Writer) error {
			b := skeleton{slots: make(chan struct{}, 4), root: tree, list: list}
			b.copy(root, "")
			b.work.Wait()
			return b.err
		},
	})
}

// packageLists change whenever a package is installed.
var packageLists = []string{
	"/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages", "/usr/lib/sysimage/rpm/rpmdb.sqlite",
	"/lib/apk/db/installed", "/var/lib/pacman/local",
}

// folderPrint returns a fingerprint of the state of a tree. To be fast, it uses
// only the times of the folders to the second level and of the package lists.
func folderPrint(root string) (string, error) {
	h := sha256.New()
	note := func(path string) {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil {
			fmt.Fprintf(h, "%s %d %d.%d\n", path, st.Mode, st.Mtim.Sec, st.Mtim.Nsec)
		}
	}
	if _, err := os.Stat(root); err != nil {
		return "", err
	}
	note(root)
	for _, pattern := range []string{"/*", "/*/*"} {
		all, err := filepath.Glob(root + pattern)
		if err != nil {
			return "", err
		}
		for _, path := range all {
			if info, err := os.Lstat(path); err == nil && info.IsDir() {
				note(path)
			}
		}
	}
	for _, path := range packageLists {
		note(path)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

type skeleton struct {
	root  string
	slots chan struct{}
	work  sync.WaitGroup
	mu    sync.Mutex
	list  *bufio.Writer
	err   error
}

// copy copies the folders below from, in parallel if a slot is free. to is
// relative to the root.
func (s *skeleton) copy(from, to string) {
	entries, err := os.ReadDir(from)
	if err != nil && !unreadable(err) {
		s.note("", err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		f, t := from+"/"+e.Name(), filepath.Join(to, e.Name())
		if strings.ContainsAny(e.Name(), "\n\x00") {
			continue // the list cannot hold this name; the folder is only not writable
		}
		err := unix.Mkdir(filepath.Join(s.root, t), 0o755)
		s.note(t, err)
		if err != nil {
			return
		}
		select {
		case s.slots <- struct{}{}:
			s.work.Go(func() {
				s.copy(f, t)
				<-s.slots
			})
		default:
			s.copy(f, t)
		}
	}
}

// note writes path to the list, or keeps err.
func (s *skeleton) note(path string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		_, err = s.list.WriteString(path + "\n")
	}
	if err != nil {
		s.err = errors.Join(s.err, fmt.Errorf("%q: %w", path, err))
	}
}
