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

// Skeleton returns a copy of the folders, and only the folders, of root. As
// the topmost lower layer it makes every folder of the host appear as ours, and
// so writable, to an ordinary user whose overlay of /usr would otherwise show
// folders of an id that does not exist inside. Host files stay what they are:
// they can be shadowed and removed from view, not changed.
//
// It takes seconds the first time (17,000 folders, 68 MiB on ext4). A folder
// that is newer than the skeleton is merely not writable.
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

// folderPrint tells two states of a tree apart cheaply: by the times of its
// folders to the second level and of the lists of packages.
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

// copy makes what is below from, in parallel where a slot is free. to is
// relative to the root.
func (s *skeleton) copy(from, to string) {
	entries, err := os.ReadDir(from)
	if err != nil && !os.IsPermission(err) && !os.IsNotExist(err) {
		s.note("", err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		f, t := from+"/"+e.Name(), filepath.Join(to, e.Name())
		if strings.ContainsAny(e.Name(), "\n\x00") {
			continue // not a name of the list; the folder is merely not writable
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

// note writes path into the list, or keeps err.
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
