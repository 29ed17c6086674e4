// Package changes finds out which of the files that a service runs changed after a
// moment: its programs, and the scripts that they name.
//
// It compares the time of the last change of a file's status (ctime). The
// kernel sets it with every write, rename, link, chmod and utimes, and no
// system call sets it to another value. Changing the clock needs a capability
// that no command has.
//
// It must not run anything, and must not follow a link of procfs. It reads the
// words of scripts only to see whether they name files.
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

// Most is the largest number of files that a Search lists.
const Most = 100

// Moment returns the current time, in nanoseconds since 1970, after it has made
// sure that every later change gets a later ctime. All earlier changes have an
// earlier or equal ctime.
//
// The kernel takes ctimes from a clock that ticks every 1 to 10 ms, or the
// exact time if a program has just read the file's times. Moment therefore
// waits for a tick.
func Moment() int64 {
	now := clock(unix.CLOCK_REALTIME)
	for clock(unix.CLOCK_REALTIME_COARSE) <= now {
		time.Sleep(200 * time.Microsecond)
	}
	return now
}

func clock(id int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // every kernel has these clocks
	return ts.Nano()
}

// Search collects files that changed. Not safe for concurrent use.
type Search struct {
	// After is the moment: a file with a later ctime has changed.
	After int64
	// Made is when the sandbox's own file system was made, where its system folders are
	// overlays over those of the machine, see Made. 0: they are not, or it is unknown.
	Made int64

	// Files are the first Most changed files.
	Files []string

	found   map[string]bool
	looked  map[string]bool // what has been looked at, see first
	scripts []string        // for Follow
	folders map[string]bool // names that are real folders, reached without links
}

// links is how many links are followed for one name, the same number as in the
// kernel.
const links = 40

// real resolves all links in name. It looks at each part of the name and
// compares each link on the way. ok is false if the file does not exist.
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
			st.Mode = unix.S_IFDIR // for at, if nothing is left
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

// parts splits a path into names, without empty ones and ".".
func parts(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(p string) bool { return p == "" || p == "." })
}

// compare reports whether a file changed, and notes it if so.
func (s *Search) compare(name string, st *unix.Stat_t) bool {
	if st.Ctim.Nano() <= s.After || s.ofMachine(name) {
		return false
	}
	s.add(name)
	return true
}

func (s *Search) add(name string) {
	if s.found[name] {
		return
	}
	if s.found == nil {
		s.found = map[string]bool{}
	}
	s.found[name] = true
	if len(s.Files) < Most {
		s.Files = append(s.Files, name)
	}
}

// File compares one file and the links that lead to it. It skips folders and
// names that do not exist. It returns where the file is.
func (s *Search) File(name string) (at string, ok bool) {
	at, st, ok := s.real(name)
	if !ok || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return at, false
	}
	s.compare(at, &st)
	return at, true
}

// Gone notes a file as changed because it should exist and does not.
func (s *Search) Gone(name string) { s.add(name) }

// Image compares the executable of a process, given its link in /proc.
func (s *Search) Image(link string) {
	if name, gone := strings.CutSuffix(link, " (deleted)"); gone {
		s.Gone(name)
		return
	}
	s.File(link)
}

// Program compares a program and, if it is a script, its interpreters.
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

// interpreter returns the program that the first line of a script names, or an
// empty string if the file is not a script.
func interpreter(name string) string {
	var b [256]byte // the kernel reads as much
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

// first reports whether something has not been looked at yet.
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

// Made returns when the sandbox's own file system was made, in nanoseconds since 1970,
// if the folder top is the root of a tmpfs; otherwise 0: it is not known.
func Made(top string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(top, &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return 0
	}
	at, _, ok := birth(top)
	if !ok {
		return 0
	}
	return at
}

// birth returns when a file was made, in nanoseconds since 1970, and whether something
// is mounted there. No program can set this time. False: the file system does not know it.
func birth(name string) (at int64, mounted, ok bool) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec), st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, err == nil && st.Mask&unix.STATX_BTIME != 0
}

// ofMachine reports whether a name is the machine's own, in the layer below an overlay
// that the sandbox cannot write to: an upgrade of the machine changed it, and not the
// agent. What the sandbox writes to, a file or a folder above it, is copied to the upper
// layer first, and that copy is younger than the sandbox's own file system. So what the
// machine adds to a folder counts as the agent's once the agent has written there, too.
func (s *Search) ofMachine(name string) bool { return OfMachine(name, s.Made) }

// OfMachine is ofMachine for a sandbox whose own file system was made at a moment.
func OfMachine(name string, made int64) bool {
	if made == 0 {
		return false
	}
	for ; name != "/"; name = path.Dir(name) {
		at, mounted, ok := birth(name)
		if mounted { // the root of an overlay is in both layers
			return false
		}
		if ok && at < made {
			var fs unix.Statfs_t
			return unix.Statfs(path.Dir(name), &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
		}
	}
	return false
}
