package base

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// private are names of files that contain a user's or a machine's credentials
// for registries and repositories, in any folder.
var private = []string{"npmrc", ".npmrc", "pip.conf", "gitconfig", ".gitconfig", ".netrc", ".pypirc", ".git-credentials"}

// Hidden lists what a sandbox must not see of root, as paths relative to it:
// files that not every user may read, and files with private names. Searching
// all of /usr takes half a second, so the result is cached for an hour, or
// until a name below root is added, removed or replaced. If only the
// permissions of a file change, this is noticed after at most an hour; until
// then every user could read the file anyway.
func (s *State) Hidden(root string) ([]string, error) {
	file := filepath.Join(s.base, "hidden"+strings.ReplaceAll(root, "/", "."))
	if before, ok := remembered(file); ok && before.holds(root) {
		return before.Hidden, nil
	}
	w := &hider{root: root, slots: make(chan struct{}, 4)}
	now := looked{Time: time.Now()}
	w.walk("")
	w.work.Wait()
	if w.err != nil {
		return nil, fmt.Errorf("look for private files in %s: %w", root, w.err)
	}
	slices.Sort(w.hidden)
	slices.SortFunc(w.folders, func(a, b folder) int { return strings.Compare(a.Path, b.Path) })
	now.Hidden, now.Folders = w.hidden, w.folders
	return now.Hidden, now.remember(file)
}

// rememberFor is how long the list of hidden paths is used before a new search.
const rememberFor = time.Hour

// looked is the result of searching a folder of the host.
type looked struct {
	Time    time.Time `json:"time"`
	Hidden  []string  `json:"hidden"`
	Folders []folder  `json:"folders"` // folders that were searched
}

// folder identifies the state of a folder: it changes with the names in the
// folder and with the folder's mode.
type folder struct {
	Path    string `json:"path"` // relative to root
	Inode   uint64 `json:"inode"`
	Changed int64  `json:"changed"` // Unix time, in ns
}

func folderOf(rel string, st *unix.Stat_t) folder {
	return folder{rel, st.Ino, st.Ctim.Nano()}
}

// remembered reads what remember wrote. It returns false if there is no usable
// result.
func remembered(file string) (looked, bool) {
	var l looked
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &l) != nil {
		return l, false
	}
	age := time.Since(l.Time)
	return l, age >= 0 && age < rememberFor
}

func (l *looked) holds(root string) bool {
	for _, f := range l.Folders {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(root, f.Path), &st) != nil || folderOf(f.Path, &st) != f {
			return false
		}
	}
	return len(l.Folders) > 0
}

func (l *looked) remember(file string) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return WriteWhole(file, text)
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
		build: func(tree string, list *bufio.Writer) error { return whiteouts(tree, hidden, list) },
	})
}

// whiteouts makes the entries that an overlay treats as deleted names.
func whiteouts(tree string, hidden []string, list *bufio.Writer) error {
	for _, rel := range hidden {
		at := filepath.Join(tree, rel)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
			return fmt.Errorf("hide %s: %w", rel, err)
		}
		if strings.Contains(rel, "\n") {
			continue // the list cannot hold this name
		}
		if _, err := list.WriteString(rel + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// hider finds the paths to hide.
type hider struct {
	root  string
	slots chan struct{}
	work  sync.WaitGroup

	mu      sync.Mutex
	hidden  []string // relative to root
	folders []folder
	err     error
}

func (h *hider) walk(rel string) {
	fd, err := unix.Open(filepath.Join(h.root, rel), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		h.fail(rel, err)
		return
	}
	dir := os.NewFile(uintptr(fd), rel)
	defer func() { _ = dir.Close() }()
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil { // before its names are read
		h.fail(rel, err)
		return
	}
	h.mu.Lock()
	h.folders = append(h.folders, folderOf(rel, &st))
	h.mu.Unlock()
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
