// Package changes finds out which of the files that a command resolves to
// changed after a moment: programs, libraries, and what loaders, shells and
// Python read at their start.
//
// It goes by the time of the last change of a file's status (ctime). The kernel
// sets it with every write, rename, link, chmod and utimes, and no system call
// sets it to another value. What changes the clock needs a capability that no
// command has.
//
// It must not run anything, and must not follow a link of procfs. Of scripts it
// reads words, to see whether they name files.
package changes

import (
	"bytes"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// Most is how many files a Search lists.
const Most = 100

// Moment returns the time, as nanoseconds since 1970, once every later change
// gets a later ctime than it. All earlier changes have an earlier one, or the
// same.
//
// The kernel stamps files with a clock that ticks every 1 to 10 ms (or with the exact
// time, where somebody has just looked at the file), so that it waits for a tick.
func Moment() int64 {
	now := clock(unix.CLOCK_REALTIME)
	for clock(unix.CLOCK_REALTIME_COARSE) <= now {
		time.Sleep(200 * time.Microsecond)
	}
	return now
}

func clock(id int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // of a clock that every kernel has
	return ts.Nano()
}

// Search collects files that changed. Not safe for concurrent use.
type Search struct {
	// After is the moment: what has a later ctime has changed.
	After int64
	// Born is a moment before anything was written to the sandbox's own file
	// system, where that is an overlay; 0: not known. A folder that has not
	// changed since then is that of the image: had a file in it been written, it
	// would have been copied, and the folder changed.
	Born int64
	// Known are folders whose links need not be read again. Read are those that
	// were read.
	Known, Read []Folder
	// Placed are folders with files that changed later for a good reason.
	Placed []string

	// Files are the first that were found, More is the number of the others.
	Files []string
	More  int

	found   map[string]bool
	looked  map[string]bool              // what has been, see first
	covered map[string]bool              // folders of which all files are compared
	image   map[string]map[string]string // links of folders that are still the image's; nil: of those that may have changed
	scripts []string                     // for Follow
	folders map[string]bool              // names that are real folders, reached through real folders
}

// links is how many links are followed for one name, as the kernel does.
const links = 40

// real is name without links: each part is looked at, and each link on the way
// is compared. ok is false for what is not there.
func (s *Search) real(name string) (at string, st unix.Stat_t, ok bool) {
	rest, hops := parts(name), 0
	at, st.Mode = "/", unix.S_IFDIR
	for len(rest) > 0 {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		if s.folders[next] {
			at, st.Mode = next, unix.S_IFDIR
			continue
		}
		if unix.Lstat(next, &st) != nil {
			return next, st, false
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			s.compare(next, &st)
			target, err := os.Readlink(next)
			if hops++; err != nil || hops > links {
				return next, st, false
			}
			if strings.HasPrefix(target, "/") {
				at = "/"
			}
			rest = append(parts(target), rest...)
			st.Mode = unix.S_IFDIR // of at, if nothing is left
		case unix.S_IFDIR:
			if s.folders == nil {
				s.folders = map[string]bool{}
			}
			s.folders[next], at = true, next
		default:
			if len(rest) > 0 {
				return next, st, false
			}
			at = next
		}
	}
	return at, st, true
}

// parts are the names in a path, less empty ones and ".".
func parts(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(p string) bool { return p == "" || p == "." })
}

// compare notes a file if it changed.
func (s *Search) compare(name string, st *unix.Stat_t) bool {
	if st.Ctim.Nano() <= s.After {
		return false
	}
	s.add(name)
	return true
}

func (s *Search) add(name string) {
	if s.found[name] || slices.ContainsFunc(s.Placed, func(dir string) bool { return strings.HasPrefix(name, dir+"/") }) {
		return
	}
	if s.found == nil {
		s.found = map[string]bool{}
	}
	s.found[name] = true
	if len(s.Files) < Most {
		s.Files = append(s.Files, name)
	} else {
		s.More++
	}
}

// File compares one file, and the links that lead to it. A folder, and what is
// not there, is passed over. It returns where the file is.
func (s *Search) File(name string) (at string, ok bool) {
	at, st, ok := s.real(name)
	if !ok || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return at, false
	}
	s.compare(at, &st)
	return at, true
}

// Gone notes a file that should be there and is not: it has changed.
func (s *Search) Gone(name string) { s.add(name) }

// Image compares what a process runs, by its link in /proc.
func (s *Search) Image(link string) {
	if name, gone := strings.CutSuffix(link, " (deleted)"); gone {
		s.Gone(name)
		return
	}
	s.File(link)
}

// Program compares a program and, for a script, what interprets it.
func (s *Search) Program(name string) {
	for range 5 { // one more than the kernel takes
		at, ok := s.File(name)
		if !ok {
			return
		}
		if name = interpreter(at); name == "" {
			return
		}
	}
}

// interpreter is the program that the first line of a script names; empty: it
// is none.
func interpreter(name string) string {
	var b [256]byte // as much as the kernel reads
	fd, _, err := beneath.Regular(name)
	if err != nil {
		return ""
	}
	n, err := unix.Pread(fd, b[:], 0)
	_ = unix.Close(fd)
	if err != nil {
		return ""
	}
	line, ok := bytes.CutPrefix(b[:n], []byte("#!"))
	if !ok {
		return ""
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	f := bytes.Fields(line)
	if len(f) == 0 || f[0][0] != '/' {
		return ""
	}
	return string(f[0])
}

// tooMany names in one folder are not compared: the folder is named instead.
const tooMany = 50_000

// folder compares what lies in a folder itself, and what its links lead to
// elsewhere. which picks names; nil picks all, and, where none has changed but the
// folder has, the folder.
func (s *Search) folder(name string, which func(string) bool) {
	at, _, ok := s.real(name)
	if !ok || !s.first(at) || s.imageFolder(at, which) {
		return
	}
	dir, err := open(at)
	if err != nil {
		return
	}
	defer dir.Close()
	fd := int(dir.Fd())
	var own unix.Stat_t
	if unix.Fstat(fd, &own) != nil {
		return
	}
	entries, _ := dir.ReadDir(tooMany + 1)
	if len(entries) > tooMany {
		s.compare(at, &own)
		return
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	changed := false
	for _, e := range entries {
		if which != nil && !which(e.Name()) {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(fd, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && s.compare(path.Join(at, e.Name()), &st) {
			changed = true
		}
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		target, err := readlinkat(fd, e.Name())
		if err == nil && !sameKind(e.Name(), target) && s.leaves(at, target) {
			s.File(path.Join(at, e.Name()))
		}
	}
	if which == nil && !changed {
		s.compare(at, &own) // a name was removed
	}
}

func readlinkat(fd int, name string) (string, error) {
	var b [4096]byte
	n, err := unix.Readlinkat(fd, name, b[:])
	return string(b[:max(n, 0)]), err
}

// cover says that the files of a folder are going to be compared.
func (s *Search) cover(name string) {
	if at, _, ok := s.real(name); ok {
		if s.covered == nil {
			s.covered = map[string]bool{}
		}
		s.covered[at] = true
	}
}

// first says whether something has not been looked at yet.
func (s *Search) first(what string) bool {
	if s.looked[what] {
		return false
	}
	if s.looked == nil {
		s.looked = map[string]bool{}
	}
	s.looked[what] = true
	return true
}

// open opens a folder that real has found.
func open(at string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, at, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), at), nil
}

// pristine says whether nothing in a folder can have been written since the
// sandbox was made.
func (s *Search) pristine(fd int, st *unix.Stat_t) bool {
	var fs unix.Statfs_t
	return s.Born > 0 && st.Ctim.Nano() < s.Born && unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}
