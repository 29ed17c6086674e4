package inside

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// files unpacks the archive that the plugin made of the files that an image
// copies. It runs after the root was changed, so no link can lead out of the
// sandbox.
func (b *builder) files() error {
	defer func() {
		for _, fd := range b.fds {
			_ = unix.Close(fd)
		}
		b.fds = nil
	}()
	if b.plan.Files == 0 {
		return nil
	}
	if b.plan.Files < 0 || b.plan.Files > len(b.fds) {
		return fmt.Errorf("descriptor %d was not sent", b.plan.Files)
	}
	in := pread(b.fds[b.plan.Files-1])
	r := tar.NewReader(bufio.NewReaderSize(io.NewSectionReader(in, 0, 1<<62), 256<<10))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpack(h, r); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// pread reads at an offset, because all sandboxes of one image share the file
// description.
type pread int

func (fd pread) ReadAt(p []byte, off int64) (int, error) {
	n, err := unix.Pread(int(fd), p, off)
	if err != nil {
		return 0, err
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// unpack creates one entry and the folders above it.
func unpack(h *tar.Header, r io.Reader) error {
	name := path.Join("/", h.Name)
	if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeFifo {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := os.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeSymlink:
		if err := os.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return own(name, h)
	case tar.TypeLink:
		return os.Link(path.Join("/", h.Linkname), name)
	case tar.TypeFifo:
		if err := unix.Mkfifo(name, 0o600); err != nil {
			return err
		}
	case tar.TypeReg:
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	default:
		return fmt.Errorf("entries of type %q are not made", h.Typeflag)
	}
	if err := own(name, h); err != nil {
		return err
	}
	return unix.Chmod(name, uint32(h.Mode&0o7777)) // after chown, which clears setuid
}

// own sets the owner of name. It looks up user names in the sandbox's own
// files.
func own(name string, h *tar.Header) error {
	uid, gid := h.Uid, h.Gid
	for _, w := range []struct {
		name, file string
		id         *int
	}{{h.Uname, "/etc/passwd", &uid}, {h.Gname, "/etc/group", &gid}} {
		if w.name == "" {
			continue
		}
		id, err := lookup(w.file, w.name)
		if err != nil {
			return err
		}
		*w.id = id
		if h.Gname == "" {
			gid = id // as in Docker: the group with the user's number
		}
	}
	return os.Lchown(name, uid, gid)
}

// lookup returns the id of name in a file with lines of the form name:x:id:….
func lookup(file, name string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[0] == name {
			return strconv.Atoi(f[2])
		}
	}
	return 0, fmt.Errorf("%s has no %q", file, name)
}
