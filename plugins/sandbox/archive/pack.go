package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// Packing holds the options of Pack.
type Packing struct {
	Limits Limits
	// Skip, if set, leaves out a name (relative, with slashes) and what is
	// below it.
	Skip func(name string) bool
	// Special writes an empty entry for a device, a socket or a pipe, so that the
	// reader knows of it. Else it is only reported.
	Special bool
	// Block is as in Extraction.
	Block func() (release func())
}

// PackFolder writes the file or folder name of the host to w. name itself may
// be, or lead through, links.
func PackFolder(w io.Writer, name string, how Packing) (Report, error) {
	dir, base := path.Split(path.Clean(name))
	if info, err := os.Stat(name); err != nil {
		return Report{}, fmt.Errorf("pack: %w", err)
	} else if info.IsDir() {
		dir, base = name, "."
	}
	if dir == "" {
		dir = "."
	}
	fd, err := beneath.Dir(dir)
	if err != nil {
		return Report{}, fmt.Errorf("pack %s: %w", name, err)
	}
	defer unix.Close(fd) //nolint:errcheck // a folder that was only looked at
	return Pack(w, fd, base, how)
}

// Pack writes base, a name directly in the folder dir (an open descriptor), or
// "." for dir itself, as an archive to w. If it is a folder the names in the
// archive are relative to it, with "." for itself; else there is one entry
// named base. Links are stored as links; devices, sockets, pipes and what is on
// file systems of the kernel's (proc, sysfs) are skipped and reported.
func Pack(w io.Writer, dir int, base string, how Packing) (report Report, err error) {
	p := packer{t: tar.NewWriter(w), how: how, left: how.Limits.orDefault(), report: &report}
	if p.how.Block == nil {
		p.how.Block = func() func() { return func() {} }
	}
	if base != "." && (base == "" || base == ".." || strings.Contains(base, "/")) {
		return report, fmt.Errorf("%w: %q is not one name", fault.ErrInvalid, base)
	}
	if err := p.entry(dir, base, "", 0); err != nil {
		return report, err
	}
	if err := p.t.Close(); err != nil {
		return report, fmt.Errorf("pack: %w", err)
	}
	return report, nil
}

type packer struct {
	t      *tar.Writer
	how    Packing
	left   Limits
	report *Report
}

// entry writes name, a name in dir, which is called as in the archive; as is
// empty for the first.
func (p *packer) entry(dir int, name, as string, depth int) error {
	var st unix.Stat_t
	release := p.how.Block()
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	release()
	if err != nil {
		return fault.Errno(err)
	}
	if as != "" && p.how.Skip != nil && p.how.Skip(as) {
		return nil
	}
	if p.left.Entries--; p.left.Entries < 0 {
		return fmt.Errorf("%w: too many entries", fault.ErrTooLarge)
	}
	head := &tar.Header{
		Name: as, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Sec, 0), Format: tar.FormatPAX,
	}
	if as == "" {
		head.Name = name
	}
	switch kind := st.Mode & unix.S_IFMT; kind {
	case unix.S_IFLNK:
		err = p.link(dir, name, head)
	case unix.S_IFREG:
		err = p.file(dir, name, head)
	case unix.S_IFDIR:
		err = p.folder(dir, name, as, head, depth)
	default:
		if p.how.Special && as != "" {
			head.Typeflag = tar.TypeFifo
			if kind == unix.S_IFCHR || kind == unix.S_IFBLK {
				head.Typeflag = tar.TypeChar
			}
			return p.t.WriteHeader(head)
		}
		err = fmt.Errorf("%w: device, socket or pipe", fault.ErrUnsafe)
	}
	if as != "" && errors.Is(err, fault.ErrUnsafe) {
		p.report.skip(as, err)
		return nil
	}
	return err
}

func (p *packer) link(dir int, name string, head *tar.Header) error {
	var b [maxName + 1]byte
	n, err := unix.Readlinkat(dir, name, b[:])
	if err != nil {
		return fault.Errno(err)
	}
	head.Typeflag, head.Linkname = tar.TypeSymlink, string(b[:n])
	p.report.Entries++
	return p.t.WriteHeader(head)
}

func (p *packer) file(dir int, name string, head *tar.Header) error {
	release := p.how.Block()
	fd, st, err := beneath.File(dir, name)
	release()
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st.Size > p.left.Bytes {
		return fmt.Errorf("%w: %q has %d bytes, %d are left", fault.ErrTooLarge, head.Name, st.Size, p.left.Bytes)
	}
	p.left.Bytes -= st.Size
	head.Typeflag, head.Size = tar.TypeReg, st.Size
	if err = p.t.WriteHeader(head); err != nil {
		return err
	}
	// The header promises a size, but the file may still change: truncate or
	// pad it.
	n, err := io.CopyBuffer(struct{ io.Writer }{p.t}, io.LimitReader(blockReader{f, p.how.Block}, st.Size), make([]byte, 64<<10))
	if err != nil {
		return err
	}
	p.report.Entries, p.report.Bytes = p.report.Entries+1, p.report.Bytes+st.Size
	_, err = io.CopyN(p.t, zeros{}, st.Size-n)
	return err
}

func (p *packer) folder(dir int, name, as string, head *tar.Header, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: more than %d folders deep", fault.ErrUnsafe, maxDepth)
	}
	release := p.how.Block()
	fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	release()
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	head.Typeflag, head.Name = tar.TypeDir, as+"/"
	if as == "" {
		head.Name = "./"
	}
	p.report.Entries++
	if err = p.t.WriteHeader(head); err != nil {
		return err
	}
	release = p.how.Block()
	names, err := f.Readdirnames(int(min(p.left.Entries, 1<<30)) + 1)
	release()
	if err != nil && !errors.Is(err, io.EOF) {
		return fault.Errno(err)
	}
	slices.Sort(names) // the archive of a tree is reproducible
	for _, n := range names {
		if failed := p.entry(fd, n, strings.TrimPrefix(as+"/"+n, "/"), depth+1); failed != nil && !errors.Is(failed, syscall.ENOENT) {
			return failed // ignore a file that was removed meanwhile
		}
	}
	return nil
}

// blockReader holds a slot for each read only.
type blockReader struct {
	f     *os.File
	block func() func()
}

func (r blockReader) Read(b []byte) (int, error) {
	defer r.block()()
	return r.f.Read(b)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
