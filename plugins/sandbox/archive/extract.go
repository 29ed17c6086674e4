package archive

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// Extraction holds the options of Extract. The zero value is for the host:
// entries that are not allowed, including links, are skipped, and files belong
// to this user.
type Extraction struct {
	Limits Limits
	// Strict fails with ErrUnsafe instead of skipping an entry.
	Strict bool
	// Links creates symbolic links and never follows one. Without AnyTarget a
	// link whose target is absolute or leads out of the folder is treated like
	// a device.
	Links, AnyTarget bool
	// Owned makes UID and GID the owner of everything that is created.
	Owned    bool
	UID, GID int
	// Block, if set, is called before each operation that may block in the
	// kernel, and the returned function after it.
	Block func() (release func())
}

// ExtractFolder is Extract into a folder of the host, which is made (0755) if
// it is missing. Its own path may contain links; nothing below it is followed.
// The Name and Depth of limits are HostName and HostDepth if they are zero.
func ExtractFolder(dir string, r io.Reader, how Extraction) (Report, error) {
	how.Limits.Name, how.Limits.Depth = cmp.Or(how.Limits.Name, HostName), cmp.Or(how.Limits.Depth, HostDepth)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Report{}, fmt.Errorf("extract: %w", err)
	}
	fd, err := beneath.Dir(dir)
	if err != nil {
		return Report{}, fmt.Errorf("extract to %s: %w", dir, err)
	}
	defer unix.Close(fd) //nolint:errcheck // a folder that was only looked at
	return Extract(fd, r, how)
}

// Extract unpacks the archive r below the folder dir, an open descriptor. A
// file replaces a file or link of its name; a folder that is there stays and
// gets the mode of the entry; a file where a folder is fails with ErrExists. On
// an error, what was extracted before stays.
func Extract(dir int, r io.Reader, how Extraction) (report Report, err error) {
	x := extractor{root: dir, how: how, owner: beneath.Owner{UID: -1, GID: -1}}
	if how.Owned {
		x.owner = beneath.Owner{UID: how.UID, GID: how.GID}
	}
	if x.how.Block == nil {
		x.how.Block = func() func() { return func() {} }
	}
	in := newReader(r, how.Limits, &report)
	refuse := report.refusal(!how.Strict)
	for {
		head, err := in.next(refuse)
		if errors.Is(err, io.EOF) {
			return report, x.leading(&report, refuse)
		}
		if err != nil {
			return report, err
		}
		if head.Typeflag == tar.TypeSymlink {
			if why := x.linkAllowed(head); why != nil {
				report.Entries--
				if err = refuse(head.Name, why); err != nil {
					return report, err
				}
				continue
			}
		}
		err = x.place(head, in.t)
		switch {
		case errors.Is(err, fault.ErrUnsafe) && !how.Strict: // a link stands where a folder should
			report.Entries, report.Bytes = report.Entries-1, report.Bytes-head.Size
			report.skip(head.Name, err)
		case err != nil:
			return report, fmt.Errorf("entry %q: %w", head.Name, fault.Errno(err))
		}
	}
}

// leading removes links that lead out of the folder through other links. It
// runs last, because the target of a link is known only when all links exist.
func (x *extractor) leading(report *Report, refuse func(string, error) error) error {
	for _, name := range x.links {
		fd, err := within(x.root, name)
		if err == nil {
			_ = unix.Close(fd)
			continue
		}
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
			continue // it leads nowhere
		}
		dir, base := path.Split(name)
		parent, err := beneath.MkdirAll(x.root, path.Clean(dir), x.owner)
		if err == nil {
			err = errors.Join(remove(parent, base), unix.Close(parent))
		}
		if err != nil {
			return fmt.Errorf("entry %q: %w", name, err)
		}
		report.Entries--
		if err = refuse(name, fmt.Errorf("%w: symbolic link out of the folder, through another link", fault.ErrUnsafe)); err != nil {
			return err
		}
	}
	return nil
}

type extractor struct {
	root  int
	links []string // that were made, where they must not lead out
	how   Extraction
	owner beneath.Owner
}

// linkAllowed returns why a link may not be created.
func (x *extractor) linkAllowed(head *tar.Header) error {
	if !x.how.Links {
		return fmt.Errorf("%w: symbolic link to %q", fault.ErrUnsafe, head.Linkname)
	}
	if x.how.AnyTarget {
		return nil
	}
	to := path.Join(path.Dir(head.Name), head.Linkname)
	if path.IsAbs(head.Linkname) || to == ".." || strings.HasPrefix(to, "../") {
		return fmt.Errorf("%w: symbolic link out of the folder, to %q", fault.ErrUnsafe, head.Linkname)
	}
	return nil
}

// place makes one entry.
func (x *extractor) place(head *tar.Header, data io.Reader) error {
	if head.Name == "." {
		return nil
	}
	release := x.how.Block()
	defer func() { release() }()
	dir, base := path.Split(head.Name)
	parent, err := beneath.MkdirAll(x.root, path.Clean(dir), x.owner)
	if err != nil {
		return err
	}
	defer unix.Close(parent) //nolint:errcheck // a folder that was only looked at
	mode := uint32(head.Mode & 0o777)
	switch head.Typeflag {
	case tar.TypeDir:
		return x.folder(parent, base, mode)
	case tar.TypeSymlink:
		if err = remove(parent, base); err != nil {
			return err
		}
		if err = unix.Symlinkat(head.Linkname, parent, base); err != nil {
			return err
		}
		if !x.how.AnyTarget {
			x.links = append(x.links, head.Name)
		}
		return x.owner.ChownAt(parent, base)
	}
	// Remove what is there, then create: a new file cannot be a link, a device,
	// a pipe or a file of procfs.
	if err = remove(parent, base); err != nil {
		return err
	}
	fd, err := beneath.Open(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	// Release the slot before waiting for data from the other side.
	release()
	release = func() {}
	_, err = io.CopyBuffer(writer{f, x.how.Block}, struct{ io.Reader }{data}, make([]byte, 64<<10))
	if !x.how.Owned {
		mode |= 0o600 // the host must be able to delete what it got
	}
	if err == nil { // owner before mode: chown clears the setuid bit
		err = errors.Join(x.owner.Chown(fd), unix.Fchmod(fd, mode))
	}
	// Second 0 in a tar archive means "no time": such a file gets the current
	// time. With a time in 1970, zip would refuse it and make would consider it
	// out of date.
	if head.ModTime.Unix() > 0 {
		t := unix.Timespec{Sec: head.ModTime.Unix(), Nsec: int64(head.ModTime.Nanosecond())}
		_ = unix.UtimesNanoAt(parent, base, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW) // an invalid time is not a reason to fail
	}
	return errors.Join(err, f.Close())
}

func (x *extractor) folder(parent int, base string, mode uint32) error {
	if !x.how.Owned {
		mode |= 0o700
	}
	if err := unix.Mkdirat(parent, base, mode); err != nil && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	fd, err := beneath.Sub(parent, base, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // a folder that was only looked at
	return errors.Join(x.owner.Chown(fd), unix.Fchmod(fd, mode))
}

// remove makes room for a file.
func remove(parent int, base string) error {
	if err := unix.Unlinkat(parent, base, 0); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}

// writer holds a slot for each write only.
type writer struct {
	f     io.Writer
	block func() func()
}

func (w writer) Write(b []byte) (int, error) {
	defer w.block()()
	return w.f.Write(b)
}

// within opens name below root, through links that stay there. The kernel gives up
// with EAGAIN if something is renamed or mounted anywhere on the machine while it
// follows "..", so it is asked again.
func within(root int, name string) (fd int, err error) {
	for range 1000 {
		fd, err = unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}
