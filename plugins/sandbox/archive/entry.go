package archive

import (
	"archive/tar"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// Entry returns a header with the mode, owner and time of a file, as they are, and
// with room for records. The caller adds type, target and size.
func Entry(name string, info fs.FileInfo) (*tar.Header, *syscall.Stat_t, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, nil, errors.New("its owner is not known")
	}
	return &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: info.ModTime(), Format: tar.FormatPAX,
		PAXRecords: map[string]string{},
	}, st, nil
}

// Links are the first names of files that have several. Make one for each archive.
type Links map[[2]uint64]string

// Again reports whether the file of an entry is in the archive already. The header is
// that of a link to its first name then.
func (l Links) Again(head *tar.Header, st *syscall.Stat_t) bool {
	key := [2]uint64{st.Dev, st.Ino}
	if first, ok := l[key]; ok {
		head.Typeflag, head.Linkname = tar.TypeLink, first
		return true
	}
	if st.Nlink > 1 {
		l[key] = head.Name
	}
	return false
}

// SetOwner makes the owner of an entry that of a file, folder or link. If the user
// namespace does not have it, the file stays as it is.
func SetOwner(name string, head *tar.Header) error {
	return beneath.Owner{UID: head.Uid, GID: head.Gid}.Restore(unix.AT_FDCWD, name)
}

// SetTime sets the time of a file, folder or link.
func SetTime(name string, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
