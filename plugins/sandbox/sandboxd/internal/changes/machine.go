package changes

import (
	"path"

	"golang.org/x/sys/unix"
)

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
// is mounted there. Nobody can set this time. False: the file system does not know it.
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
