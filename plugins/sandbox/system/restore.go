package system

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// restorer makes the files of a new sandbox those of an archive.
type restorer struct {
	t      tree
	q      RestoreQuery
	places Places
	done   Restored
	names  map[string]map[string]bool // of folders that are whole
	times  []folderTime
}

type folderTime struct {
	name string
	at   time.Time
}

// restore takes what it is to take of an archive of keep.
func (t tree) restore(q RestoreQuery, in io.Reader) (Restored, error) {
	r := &restorer{t: t, q: q, names: map[string]map[string]bool{}}
	if q.WorkOnly {
		r.places = Find(q.Commands)
	}
	for a := tar.NewReader(in); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r.done, err
		}
		if !path.IsAbs(h.Name) {
			return r.done, fmt.Errorf("%q is not absolute", h.Name)
		}
		h.Name = path.Clean(h.Name)
		if err = r.entry(h, a); err != nil {
			return r.done, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	for name, there := range r.names {
		if err := r.sweep(name, there); err != nil {
			return r.done, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, f := range slices.Backward(r.times) {
		if at, done, err := t.parent(f.name); err == nil {
			setTime(at, f.at)
			done()
		}
	}
	return r.done, nil
}

// entry takes one entry.
func (r *restorer) entry(h *tar.Header, in io.Reader) error {
	if there := r.names[path.Dir(h.Name)]; there != nil && h.Name != "/" {
		there[path.Base(h.Name)] = true
	}
	switch {
	case h.PAXRecords[Same] != "":
		return nil
	case h.Name == "/":
		r.names["/"] = map[string]bool{}
		return nil
	case r.q.WorkOnly && (r.places.Has(h.Name) || h.Typeflag != tar.TypeDir && r.places.Above(h.Name) || h.Typeflag == tar.TypeLink && r.places.Has(path.Clean(h.Linkname))):
		return nil
	case r.q.WorkOnly && h.Typeflag != tar.TypeDir && r.aside(h):
		r.done.Aside.add(h.Name)
		return nil
	}
	at, done, err := r.t.parent(h.Name)
	if err != nil {
		return err
	}
	defer done()
	if h.Typeflag == tar.TypeDir {
		r.times = append(r.times, folderTime{h.Name, h.ModTime})
		if h.PAXRecords[Whole] != "" {
			r.names[h.Name] = map[string]bool{}
		}
		if err = folder(at); err != nil {
			return err
		}
		return own(at, h)
	}
	if err = os.RemoveAll(at); errors.Is(err, unix.EBUSY) {
		return nil // a file that the environment mounted, such as /etc/hosts
	}
	if err != nil {
		return err
	}
	return r.make(at, h, in)
}

// aside reports whether a link leads into a folder that no link may lead into, or a
// file stands where such a folder is.
func (r *restorer) aside(h *tar.Header) bool {
	if slices.ContainsFunc(r.q.Aside, func(dir string) bool { return Holds(h.Name, path.Clean(dir)) }) {
		return true
	}
	return h.Typeflag == tar.TypeSymlink && leads(h.Name, h.Linkname, r.q.Aside)
}

// leads reports whether a link leads into one of some folders.
func leads(name, target string, folders []string) bool {
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(name), target)
	}
	return slices.ContainsFunc(folders, func(dir string) bool { return Holds(path.Clean(dir), path.Clean(target)) })
}

// setAside removes links that were made since the sandbox was made and lead into folders.
func (t tree) setAside(q AsideQuery) (gone Names, err error) {
	w := &walk{made: q.Made, other: func(dir *os.File, base string, h *tar.Header, st *syscall.Stat_t, same bool) error {
		if same || st.Mode&unix.S_IFMT != unix.S_IFLNK {
			return nil
		}
		target, err := os.Readlink(place(dir, base))
		if err != nil || !leads(h.Name, target, q.Folders) {
			return err
		}
		gone.add(h.Name)
		return os.Remove(place(dir, base))
	}}
	return gone, w.all(t)
}

func (r *restorer) make(at string, h *tar.Header, in io.Reader) error {
	var err error
	switch h.Typeflag {
	case tar.TypeSymlink:
		err = os.Symlink(h.Linkname, at)
	case tar.TypeLink:
		first, end, failed := r.t.parent(path.Clean(h.Linkname))
		if failed != nil {
			return failed
		}
		defer end()
		return os.Link(first, at)
	case tar.TypeFifo:
		err = unix.Mkfifo(at, 0o600)
	case tar.TypeReg:
		err = write(at, in)
	default:
		return fmt.Errorf("entry of type %q", h.Typeflag)
	}
	if err != nil {
		return err
	}
	return own(at, h)
}

// sweep removes what a folder does not have in the archive.
func (r *restorer) sweep(name string, there map[string]bool) error {
	dir := r.t.at(name)
	if name != "/" {
		at, done, err := r.t.parent(name)
		if err != nil {
			return err
		}
		defer done()
		dir = at
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		full := path.Join(name, e.Name())
		if there[e.Name()] || slices.Contains(unkept, full) || r.q.WorkOnly && (r.places.Has(full) || r.places.Above(full)) {
			continue
		}
		if err = os.RemoveAll(dir + "/" + e.Name()); err != nil && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return nil
}

// parent opens the folder of a name, through no link, and returns a path that
// stays with it.
func (t tree) parent(name string) (at string, done func(), err error) {
	root, err := unix.Open(t.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	defer unix.Close(root) //nolint:errcheck // a folder that was only looked at
	dir := strings.TrimPrefix(path.Dir(name), "/")
	if dir == "" {
		dir = "."
	}
	fd, err := unix.Openat2(root, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return "", nil, &fs.PathError{Op: "open", Path: path.Dir(name), Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, path.Base(name)), func() { _ = unix.Close(fd) }, nil
}

// folder makes a folder, in place of anything else that is there.
func folder(at string) error {
	err := os.Mkdir(at, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, failed := os.Lstat(at); failed != nil || info.IsDir() {
		return failed
	}
	if err = os.Remove(at); err == nil {
		err = os.Mkdir(at, 0o700)
	}
	return err
}

func write(at string, r io.Reader) error {
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// own sets owner, mode, capabilities and time.
func own(at string, h *tar.Header) error {
	if err := (beneath.Owner{UID: h.Uid, GID: h.Gid}).Restore(unix.AT_FDCWD, at); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Chmod(at, uint32(h.Mode&0o7777)); err != nil { //nolint:gosec // permission bits
			return err
		}
	}
	if value := h.PAXRecords[xattr]; value != "" {
		if err := unix.Lsetxattr(at, capability, []byte(value), 0); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	setTime(at, h.ModTime)
	return nil
}

// setTime sets the time of a file, folder or link, if it can: nothing depends on it.
func setTime(at string, t time.Time) {
	ts := unix.NsecToTimespec(t.UnixNano())
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, at, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
