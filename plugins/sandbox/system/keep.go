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

	"github.com/berth-eval/berth/plugins/sandbox/archive"
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

// keeper writes an archive of what was written in a sandbox.
type keeper struct {
	made  int64
	limit int64 // bytes of files
	left  int64 // of limit
	tar   *tar.Writer
	links archive.Links
	count int
}

// keep writes every folder in which something was written since the sandbox was made,
// with all names in it.
func (t tree) keep(q KeepQuery, out io.Writer) error {
	k := &keeper{made: q.Made, limit: q.MaxBytes, left: q.MaxBytes, tar: tar.NewWriter(out), links: archive.Links{}}
	root, err := os.Open(t.root)
	if err != nil {
		return err
	}
	defer root.Close()
	if err = k.folder(root, "/", &tar.Header{Name: "/", Typeflag: tar.TypeDir, Mode: 0o755, Format: tar.FormatPAX, PAXRecords: map[string]string{}}, 0); err != nil {
		return err
	}
	return k.tar.Close()
}

func (k *keeper) folder(open *os.File, name string, h *tar.Header, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("too large: more than %d folders in one another", maxDepth)
	}
	h.Typeflag = tar.TypeDir
	h.PAXRecords[Whole] = "y"
	if err := k.tar.WriteHeader(h); err != nil {
		return err
	}
	names, err := open.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	slices.Sort(names)
	for _, base := range names {
		if k.count++; k.count > MaxFiles {
			return fmt.Errorf("too large: more than %d files", MaxFiles)
		}
		if err = k.entry(open, path.Join(name, base), base, depth); err != nil {
			return fmt.Errorf("%s: %w", path.Join(name, base), err)
		}
	}
	return nil
}

func (k *keeper) same(name string) error {
	return k.tar.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{Same: "y"}})
}

// entry writes one name in an open folder.
func (k *keeper) entry(dir *os.File, name, base string, depth int) error {
	at := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), base)
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h, st, err := archive.Entry(name, info)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case slices.Contains(unkept, name):
		return k.same(name)
	case mode.IsDir():
		return k.below(dir, name, base, h, st, depth)
	case k.unwritten(dir, st):
		return k.same(name)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(at); err != nil {
			return err
		}
		return k.tar.WriteHeader(h)
	case mode.IsRegular():
		return k.file(dir, base, h, st)
	case mode&fs.ModeNamedPipe != 0:
		h.Typeflag = tar.TypeFifo
		return k.tar.WriteHeader(h)
	default:
		return k.same(name) // a device or a socket
	}
}

// unwritten reports whether a file is still the image's.
func (k *keeper) unwritten(dir *os.File, st *syscall.Stat_t) bool {
	return st.Ctim.Nano() < k.made && Unwritten(int(dir.Fd()), st.Ctim.Nano(), k.made)
}

func (k *keeper) below(dir *os.File, name, base string, h *tar.Header, st *syscall.Stat_t, depth int) error {
	fd, err := open(dir, base, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer fd.Close()
	if Unwritten(int(fd.Fd()), st.Ctim.Nano(), k.made) {
		return k.same(name)
	}
	return k.folder(fd, name, h, depth+1)
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
	if k.links.Again(h, st) {
		return k.tar.WriteHeader(h)
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
	if n, err := unix.Fgetxattr(int(in.Fd()), capability, value[:]); err == nil && n > 0 {
		h.PAXRecords[xattr] = string(value[:n])
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err = k.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(k.tar, in, st.Size)
	return err
}
