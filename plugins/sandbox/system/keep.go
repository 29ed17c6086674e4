package system

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// tree is a file system; root is "/" but in tests.
type tree struct{ root string }

func (t tree) at(name string) string { return filepath.Join(t.root, name) }

// The records of an archive entry that say what to do with its path.
const (
	Same  = "BERTH.same"  // it is as in the image, or cannot be kept
	Whole = "BERTH.whole" // of a folder: a name that the archive does not have is not there
)

// Bounds of an archive: its entries, and folders in one another.
const (
	MaxFiles = 500_000
	maxDepth = 200
)

// capability is the extended attribute that gives a program capabilities, and
// xattr how an archive names it.
const (
	capability = "security.capability"
	xattr      = "SCHILY.xattr." + capability
)

// unkept are folders of which nothing is kept: they are not of the sandbox's own
// file system.
var unkept = []string{"/berth", "/proc", "/sys", "/dev"}

// Unwritten reports whether nothing can have been written in an open folder since a
// sandbox was made, or nothing is there that could be listed. In an overlay, a folder
// that has not changed since then (ctime, both in nanoseconds since 1970) is still the
// image's, with all below it: a write would have copied it up.
func Unwritten(fd int, changed, made int64) bool {
	var fs unix.Statfs_t
	if beneath.Special(fd) || unix.Fstatfs(fd, &fs) != nil {
		return true
	}
	return fs.Flags&unix.ST_RDONLY != 0 || fs.Type == unix.OVERLAYFS_SUPER_MAGIC && changed < made
}

// walk visits every folder in which something was written since a sandbox was made, and
// all names in it.
type walk struct {
	made  int64
	count int
	// folder is called before the names in it, and may be nil.
	folder func(h *tar.Header) error
	// other is called for a name that is no such folder. same says that it is as in the
	// image, or cannot be kept. at stays with its folder.
	other func(dir *os.File, base string, h *tar.Header, st *syscall.Stat_t, same bool) error
}

func (w *walk) all(t tree) error {
	root, err := os.Open(t.root)
	if err != nil {
		return err
	}
	defer root.Close()
	return w.below(root, &tar.Header{Name: "/", Mode: 0o755, Format: tar.FormatPAX, PAXRecords: map[string]string{}}, 0)
}

func (w *walk) below(open *os.File, h *tar.Header, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("too large: more than %d folders in one another", maxDepth)
	}
	if w.folder != nil {
		if err := w.folder(h); err != nil {
			return err
		}
	}
	names, err := open.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("read %s: %w", h.Name, err)
	}
	slices.Sort(names)
	for _, base := range names {
		if w.count++; w.count > MaxFiles {
			return fmt.Errorf("too large: more than %d files", MaxFiles)
		}
		if err = w.entry(open, path.Join(h.Name, base), base, depth); err != nil {
			return fmt.Errorf("%s: %w", path.Join(h.Name, base), err)
		}
	}
	return nil
}

// entry visits one name in an open folder.
func (w *walk) entry(dir *os.File, name, base string, depth int) error {
	info, err := os.Lstat(place(dir, base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner is not known")
	}
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: info.ModTime(), Format: tar.FormatPAX,
		PAXRecords: map[string]string{},
	}
	changed := st.Ctim.Nano()
	switch mode := info.Mode(); {
	case slices.Contains(unkept, name):
		return w.other(dir, base, h, st, true)
	case mode.IsDir():
		fd, err := open(dir, base, unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer fd.Close()
		if Unwritten(int(fd.Fd()), changed, w.made) {
			return w.other(dir, base, h, st, true)
		}
		return w.below(fd, h, depth+1)
	default:
		same := changed < w.made && Unwritten(int(dir.Fd()), changed, w.made)
		return w.other(dir, base, h, st, same)
	}
}

// place is a path that stays with its folder.
func place(dir *os.File, base string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), base)
}

// keeper writes an archive.
type keeper struct {
	limit int64 // bytes of files
	left  int64 // of limit
	tar   *tar.Writer
	links map[[2]uint64]string // first names of files that have several
}

// keep writes what differs from the image.
func (t tree) keep(q KeepQuery, out io.Writer) error {
	k := &keeper{limit: q.MaxBytes, left: q.MaxBytes, tar: tar.NewWriter(out), links: map[[2]uint64]string{}}
	w := &walk{made: q.Made, other: k.other, folder: func(h *tar.Header) error {
		h.Typeflag = tar.TypeDir
		h.PAXRecords[Whole] = "y"
		return k.tar.WriteHeader(h)
	}}
	if err := w.all(t); err != nil {
		return err
	}
	return k.tar.Close()
}

func (k *keeper) other(dir *os.File, base string, h *tar.Header, st *syscall.Stat_t, same bool) (err error) {
	switch kind := st.Mode & unix.S_IFMT; {
	case same:
	case kind == unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(place(dir, base)); err != nil {
			return err
		}
		return k.tar.WriteHeader(h)
	case kind == unix.S_IFREG:
		return k.file(dir, base, h, st)
	case kind == unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
		return k.tar.WriteHeader(h)
	}
	// As in the image, or a device or a socket.
	return k.tar.WriteHeader(&tar.Header{Name: h.Name, Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{Same: "y"}})
}

// open opens a name in a folder, and follows no link.
func open(dir *os.File, base string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), base, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | flags, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), base), nil
}

func (k *keeper) file(dir *os.File, base string, h *tar.Header, st *syscall.Stat_t) error {
	inode := [2]uint64{st.Dev, st.Ino}
	if first, ok := k.links[inode]; ok {
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return k.tar.WriteHeader(h)
	}
	if st.Nlink > 1 {
		k.links[inode] = h.Name
	}
	if k.left -= st.Size; k.left < 0 {
		return fmt.Errorf("too large: the files have more than %d MiB", k.limit>>20)
	}
	in, err := open(dir, base, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer in.Close()
	var value [256]byte
	if n, none := unix.Fgetxattr(int(in.Fd()), capability, value[:]); none == nil && n > 0 {
		h.PAXRecords[xattr] = string(value[:n])
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err = k.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(k.tar, in, st.Size)
	return err
}
