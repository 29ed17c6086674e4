package system

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/archive"
)

// The kinds of files.
const (
	kindFile   = "file"
	kindFolder = "folder"
	kindLink   = "link"
	kindOther  = "other"
)

// capability is the extended attribute that gives a program capabilities, and
// xattr how an archive names it.
const (
	capability = "security.capability"
	xattr      = "SCHILY.xattr." + capability
)

// find returns the system files among the changed ones.
func (t tree) find(q Query) Found {
	p := t.places(q)
	found := Found{Open: p.open}
	roots := p.sorted()
	names := map[string]bool{}
	for _, changed := range q.Changed {
		name := path.Clean("/" + string(changed))
		if name == "/" {
			continue
		}
		if p.is(name) {
			names[name] = true
			continue
		}
		for _, root := range roots { // what was a folder may have been replaced as a whole
			if holds(name, root) {
				names[name], names[root] = true, true
			}
		}
		for dir := range p.startup {
			if holds(name, dir) {
				names[name], names[dir] = true, true
			}
		}
	}
	for name := range names {
		f := File{Path: []byte(name)}
		if info, err := os.Lstat(t.at(name)); err == nil && info.Mode().IsRegular() {
			f.Kind = kindFile
		}
		found.Files = append(found.Files, f)
	}
	slices.SortFunc(found.Files, func(a, b File) int { return bytes.Compare(a.Path, b.Path) })
	for _, root := range roots {
		if info, err := os.Lstat(t.at(root)); err == nil && !info.IsDir() {
			found.Single = append(found.Single, root)
		} else {
			found.Folders = append(found.Folders, root)
		}
	}
	return found
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

// look returns the state of a path, to which no link leads. With sum, it has the
// sum of a file.
func (t tree) look(name string, sum bool) File {
	f := File{Path: []byte(name)}
	at, done, err := t.parent(name)
	if err != nil {
		return f
	}
	defer done()
	info, err := os.Lstat(at)
	if err != nil {
		return f
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return f
	}
	f.Mode, f.UID, f.GID, f.Kind = st.Mode&0o7777, st.Uid, st.Gid, kindOther
	switch mode := info.Mode(); {
	case mode.IsDir():
		f.Kind = kindFolder
		if d, err := os.Open(at); err == nil {
			names, _ := d.Readdirnames(-1)
			_ = d.Close()
			slices.Sort(names)
			for _, n := range names {
				f.Names = append(f.Names, []byte(n))
			}
		}
	case mode&fs.ModeSymlink != 0:
		f.Kind = kindLink
		target, _ := os.Readlink(at)
		f.Target = []byte(target)
	case mode.IsRegular():
		f.Kind, f.Bytes = kindFile, info.Size()
		if sum {
			f.Sum = sumOf(at)
		}
	}
	return f
}

func sumOf(name string) string {
	in, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer in.Close()
	h := sha256.New()
	if _, err = io.Copy(h, in); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// same reports whether two states of a path are the same, apart from the content
// of a folder.
func same(a, b File) bool {
	return a.Kind == b.Kind && a.UID == b.UID && a.GID == b.GID && (a.Kind == kindLink || a.Mode == b.Mode) &&
		a.Bytes == b.Bytes && a.Sum == b.Sum && bytes.Equal(a.Target, b.Target) && a.Kind != kindOther
}

// packer writes an archive that makes paths as they are in its own tree.
type packer struct {
	t     tree
	tar   *tar.Writer
	done  map[string]bool // paths that were removed or replaced, with all their content
	links archive.Links
}

// pack writes what differs from the files of another tree.
func (t tree) pack(q Query, out io.Writer) error {
	p := t.places(q)
	x := &packer{t: t, tar: tar.NewWriter(out), done: map[string]bool{}, links: archive.Links{}}
	for i := range q.Files {
		f := &q.Files[i]
		name := string(f.Path)
		if x.over(name) {
			continue
		}
		if err := x.put(p, name, f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return x.tar.Close()
}

// over reports whether a path was dealt with, alone or with a folder above it.
func (x *packer) over(name string) bool {
	for dir := name; dir != "/" && dir != "."; dir = path.Dir(dir) {
		if x.done[dir] {
			return true
		}
	}
	return false
}

func (x *packer) put(p *places, name string, there *File) error {
	ours := x.t.look(name, there.Kind == kindFile)
	system := p.is(name)
	switch {
	case ours.Kind == "":
		if system && there.Kind != "" {
			return x.remove(name)
		}
		return nil
	case ours.Kind == kindFolder && there.Kind == kindFolder:
		if system && !same(ours, *there) {
			if err := x.entry(name, false); err != nil {
				return err
			}
		}
		return x.names(p, name, system, ours.Names, there.Names)
	case !system && ours.Kind != kindFolder, same(ours, *there):
		return nil
	case !system && there.Kind == "":
		return x.entry(name, false) // the system's files in it are looked at on their own
	}
	return x.replace(name)
}

// names makes the names in a folder those that it has here.
func (x *packer) names(p *places, dir string, system bool, ours, theirs [][]byte) error {
	counts := func(n []byte) bool { return system || p.startup[dir] && startsPython(string(n)) }
	for _, n := range theirs {
		if _, found := slices.BinarySearchFunc(ours, n, bytes.Compare); !found && counts(n) {
			if err := x.remove(path.Join(dir, string(n))); err != nil {
				return err
			}
		}
	}
	for _, n := range ours {
		if _, found := slices.BinarySearchFunc(theirs, n, bytes.Compare); !found && counts(n) {
			if err := x.replace(path.Join(dir, string(n))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *packer) remove(name string) error {
	x.done[name] = true
	return x.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Format: tar.FormatPAX, PAXRecords: map[string]string{Removed: "y"}})
}

// replace writes a path with all its content.
func (x *packer) replace(name string) error {
	x.done[name] = true
	if err := x.entry(name, true); err != nil {
		return err
	}
	return filepath.WalkDir(x.t.at(name), func(full string, _ fs.DirEntry, err error) error {
		if err != nil || full == x.t.at(name) {
			return err
		}
		rel, err := filepath.Rel(x.t.root, full)
		if err != nil {
			return err
		}
		return x.entry("/"+rel, false)
	})
}

// entry writes one entry.
func (x *packer) entry(name string, replace bool) error {
	at := x.t.at(name)
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	h, st, err := archive.Entry(name, info)
	if err != nil {
		return err
	}
	if replace {
		h.PAXRecords[Replaced] = "y"
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag = tar.TypeDir
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(at); err != nil {
			return err
		}
	case mode.IsRegular():
		return x.file(at, h, st)
	default:
		return nil // no image has devices or sockets there that a test needs
	}
	return x.tar.WriteHeader(h)
}

func (x *packer) file(at string, h *tar.Header, st *syscall.Stat_t) error {
	if x.links.Again(h, st) {
		return x.tar.WriteHeader(h)
	}
	var value [256]byte
	if n, err := unix.Lgetxattr(at, capability, value[:]); err == nil && n > 0 {
		h.PAXRecords[xattr] = string(value[:n])
	}
	in, err := os.Open(at)
	if err != nil {
		return err
	}
	defer in.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err = x.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(x.tar, in, st.Size)
	return err
}

// apply makes the paths of an archive as it says.
func (t tree) apply(in io.Reader) error {
	err := archive.Unpack(tar.NewReader(in), t.make, func(h *tar.Header) error {
		if at, done, err := t.parent(h.Name); err == nil {
			setTime(at, h.ModTime)
			done()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put back %w", err)
	}
	return nil
}

func (t tree) make(h *tar.Header, r io.Reader) error {
	at, done, err := t.parent(h.Name)
	if errors.Is(err, fs.ErrNotExist) && h.PAXRecords[Removed] != "" {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	if h.PAXRecords[Removed] != "" || h.PAXRecords[Replaced] != "" {
		if err = os.RemoveAll(at); errors.Is(err, unix.EBUSY) {
			return nil // a file that the environment mounted, such as /etc/hosts
		}
		if err != nil || h.PAXRecords[Removed] != "" {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err = folder(at)
	case tar.TypeSymlink:
		err = os.Symlink(h.Linkname, at)
	case tar.TypeLink:
		first, end, failed := t.parent(h.Linkname)
		if failed != nil {
			return failed
		}
		defer end()
		return os.Link(first, at)
	case tar.TypeReg:
		err = write(at, r)
	default:
		return fmt.Errorf("entry of type %q", h.Typeflag)
	}
	if err != nil {
		return err
	}
	return own(at, h)
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
	if err := archive.SetOwner(at, h); err != nil {
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

// setTime sets the time of a file, which nothing depends on.
func setTime(at string, when time.Time) {
	_ = archive.SetTime(at, when)
}
