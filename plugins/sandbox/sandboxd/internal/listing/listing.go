// Package listing lists the files of a system, so that two lists say what was added,
// changed or removed between them.
//
// Nothing that a program does to a file in between can be hidden. The time of the
// last change of a file's status (ctime) is set by the kernel with every write,
// rename, link, chmod and utimes, and no system call sets it to another value.
// Changing the clock needs a capability that no command has.
//
// It must not run anything, and must not follow a link.
package listing

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

// Bounds of a list: its files, and folders in one another.
const (
	MaxFiles = system.MaxFiles
	maxDepth = 200
)

// file is what is compared of a file.
type file struct {
	mode, uid, gid uint32 // mode with the kind
	inode, device  uint64 // device is that of a device node
	size, changed  int64  // changed is the ctime in nanoseconds since 1970
}

func (f file) folder() bool { return f.mode&unix.S_IFMT == unix.S_IFDIR }

// List is a list of the files at and below some places. It does not change.
type List struct {
	made   int64 // see Make
	places system.Places
	files  map[string]file
	whole  map[string]bool // folders whose files are still those of the image, and are not listed
	mounts map[string]bool
}

// Make lists the files of some places. made is a moment, in nanoseconds since 1970,
// after the image of the sandbox was complete and before anything was written to the
// sandbox's own file system; 0 means unknown. Folders that are still the image's
// (system.Unwritten) are not entered.
//
// It fails with fault.ErrTooLarge above MaxFiles files.
func Make(places system.Places, made int64) (*List, error) {
	l := &List{made: made, places: places, files: map[string]file{}, whole: map[string]bool{}, mounts: map[string]bool{}}
	for _, root := range places.Roots {
		if err := l.root(root); err != nil {
			return nil, err
		}
	}
	return l, l.mounted()
}

// Again makes the same list of the files as they are now.
func (l *List) Again() (*List, error) { return Make(l.places, l.made) }

// root lists one root. A root that does not exist is no error.
func (l *List) root(name string) error {
	dir, err := unix.Openat2(unix.AT_FDCWD, path.Dir(name), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path.Dir(name), err)
	}
	defer unix.Close(dir) //nolint:errcheck // a folder that was only read
	return l.entry(dir, path.Dir(name), path.Base(name), 0)
}

// gone reports whether an error means that a name does not exist, or not any more.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// entry lists a name in an open folder, and what is below it.
func (l *List) entry(dir int, folder, base string, depth int) error {
	name := path.Join(folder, base)
	if slices.Contains(l.places.Work, name) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); gone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	if _, listed := l.files[name]; listed {
		return nil // below another root, too
	}
	if len(l.files) == MaxFiles {
		return fmt.Errorf("%w: more than %d files", fault.ErrTooLarge, MaxFiles)
	}
	f := file{mode: st.Mode, uid: st.Uid, gid: st.Gid, inode: st.Ino, device: st.Rdev, size: st.Size, changed: st.Ctim.Nano()}
	l.files[name] = f
	if !f.folder() {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("%w: more than %d folders in one another", fault.ErrTooLarge, maxDepth)
	}
	fd, err := unix.Openat2(dir, base, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	open := os.NewFile(uintptr(fd), name)
	defer open.Close()
	if system.Unwritten(fd, f.changed, l.made) && !l.named(name) {
		l.whole[name] = true
		return nil
	}
	return l.folder(open, name, depth)
}

// named reports whether the names in a folder are listed although it is still the
// image's: it has Python's modules, or is above them. A cache that Python writes there
// is not a change, and must not hide that a name was removed.
func (l *List) named(folder string) bool {
	return slices.ContainsFunc(l.places.Python, func(dir string) bool { return system.Holds(folder, dir) || system.Holds(dir, folder) })
}

func (l *List) folder(open *os.File, name string, depth int) error {
	for {
		entries, end := open.ReadDir(1000)
		for _, e := range entries {
			if err := l.entry(int(open.Fd()), name, e.Name(), depth+1); err != nil {
				return err
			}
		}
		if errors.Is(end, io.EOF) || errors.Is(end, unix.ENOENT) {
			return nil
		}
		if end != nil {
			return fmt.Errorf("read %s: %w", name, end)
		}
	}
}

// mounted notes what is mounted at, above and below the roots, and how.
func (l *List) mounted() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 6 {
			continue
		}
		at := unescaped.Replace(words[4])
		if slices.ContainsFunc(l.places.Roots, func(root string) bool { return system.Holds(at, root) || system.Holds(root, at) }) {
			options, _, _ := strings.Cut(words[5], ",") // rw or ro
			l.mounts[strings.Join([]string{at, words[2], words[3], options}, "\x00")] = true
		}
	}
	return nil
}

// unescaped undoes what the kernel does to names in its list of mounts.
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Compare returns the names of what was added, changed or removed between two lists
// of the same places, sorted. The content of a folder that was added or removed is
// left out where the folder was known. A folder stands for what was removed from it
// if nothing else below it has changed.
func (l *List) Compare(now *List) []string {
	d := difference{before: l, now: now, found: map[string]bool{}, above: map[string]bool{}}
	var folders []string // in which something may have been removed
	for name, f := range l.files {
		switch g, there := now.files[name]; {
		case !there || differs(f, g):
			d.add(name)
		case f.folder() && f.changed != g.changed && l.whole[name]: // the names in it were not listed
			folders = append(folders, name)
		}
	}
	for name, g := range now.files {
		if _, there := l.files[name]; there || l.ofImage(name) && g.changed < l.made {
			continue
		}
		if g.folder() && l.ofImage(name) { // it is new, or something below it is
			folders = append(folders, name)
		} else {
			d.add(name)
		}
	}
	for name := range l.mounts {
		if !now.mounts[name] {
			d.add(mountPoint(name))
		}
	}
	for name := range now.mounts {
		if !l.mounts[name] {
			d.add(mountPoint(name))
		}
	}
	slices.Sort(folders)
	for _, name := range slices.Backward(folders) { // what is in a folder comes after it
		if !d.above[name] {
			d.add(name)
		}
	}
	return d.sorted()
}

type difference struct {
	before, now *List
	found       map[string]bool
	above       map[string]bool // folders with something below them that was found
}

func (d *difference) add(name string) {
	d.found[name] = true
	for dir := path.Dir(name); dir != "/" && !d.above[dir]; dir = path.Dir(dir) {
		d.above[dir] = true
	}
}

// sorted leaves out what lies in a folder that was added or removed.
func (d *difference) sorted() (names []string) {
	for name := range d.found {
		inside := false
		for dir := path.Dir(name); dir != "/" && !inside; dir = path.Dir(dir) {
			_, was := d.before.files[dir]
			_, is := d.now.files[dir]
			inside = d.found[dir] && was != is
		}
		if !inside {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func mountPoint(key string) string {
	at, _, _ := strings.Cut(key, "\x00")
	return at
}

// differs compares two states of a file. The inode, size and time of a folder change
// with its content.
func differs(f, g file) bool {
	if f.folder() && g.folder() {
		f.inode, f.size, f.changed = g.inode, g.size, g.changed
	}
	return f != g
}

// ofImage reports whether the list leaves out a name because a folder above it was
// still the image's.
func (l *List) ofImage(name string) bool {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if l.whole[dir] {
			return true
		}
	}
	return false
}

// Cache reports whether a name is one of Python's caches, see system.Places.
func (l *List) Cache(name string) bool { return l.places.Cache(name) }
