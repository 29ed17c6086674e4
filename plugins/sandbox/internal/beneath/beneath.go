// Package beneath opens files below a folder's descriptor without following a
// link on the way. It never opens anything on procfs or another special file
// system: if PID 1 followed a link to /proc/1/mem, it would write into its own
// memory, and the kernel allows that without any capability.
//
// It must not open anything by a path that the sandbox can change in the
// meantime.
package beneath

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
)

// special are file systems whose entries are not regular files: reading or
// writing one has effects, or never ends.
var special = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true,
	unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.SECURITYFS_MAGIC: true, unix.BPF_FS_MAGIC: true,
	unix.DEVPTS_SUPER_MAGIC: true, unix.EFIVARFS_MAGIC: true, unix.BINFMTFS_MAGIC: true, unix.NSFS_MAGIC: true,
	unix.SELINUX_MAGIC: true, unix.SMACK_MAGIC: true, 0x62656570 /* configfs */ : true, 0x19800202 /* mqueue */ : true,
}

// Dir opens a folder by name. It follows the links of the sandbox, because an
// image or an agent may have moved /app. It does not follow those of procfs,
// and refuses a special file system (ErrUnsafe). Close it with unix.Close.
func Dir(name string) (fd int, err error) {
	return plain(unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   unix.O_DIRECTORY | unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	}))
}

// Open opens name, which may have several parts, under dir. No part may be a
// link, and none may lead out of dir or into a special file system. mode is for
// O_CREAT.
func Open(dir int, name string, flags, mode uint64) (int, error) {
	return plain(unix.Openat2(dir, name, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: mode,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}))
}

// Sub opens the folder name in dir. It must exist and be a real folder: a link
// or file in its place is ErrUnsafe.
func Sub(dir int, name string, flags uint64) (int, error) {
	fd, err := Open(dir, name, flags|unix.O_DIRECTORY, 0)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return -1, fmt.Errorf("%w: %q is a link or file where a folder should be", fault.ErrUnsafe, name)
	}
	return fd, err
}

// plain refuses a descriptor on a special file system.
func plain(fd int, err error) (int, error) {
	if err != nil {
		return -1, fault.Errno(err)
	}
	var fs unix.Statfs_t
	if err = unix.Fstatfs(fd, &fs); err == nil && special[int64(fs.Type)] { //nolint:unconvert // int32 on some machines
		err = fmt.Errorf("%w: on a file system of the kernel's", fault.ErrUnsafe)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fault.Errno(err)
	}
	return fd, nil
}

// Special reports whether a descriptor is on a file system of the kernel's, or on
// one that cannot be asked.
func Special(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) != nil || special[int64(fs.Type)] //nolint:unconvert // int32 on some machines
}

// File opens a regular file under dir for reading and returns its stat. It
// refuses links, devices and pipes; a pipe would make the reader wait.
func File(dir int, name string) (fd int, st unix.Stat_t, err error) {
	fd, err = Open(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, st, err
	}
	return regular(fd)
}

// Owner is the owner of new files. A negative number leaves it to the kernel.
type Owner struct{ UID, GID int }

// Chown makes o the owner of fd.
func (o Owner) Chown(fd int) error {
	if o.UID < 0 {
		return nil
	}
	return o.missing(unix.Fchown(fd, o.UID, o.GID))
}

// ChownAt makes o the owner of name under dir. If name is a link, the link
// itself gets the owner.
func (o Owner) ChownAt(dir int, name string) error {
	if o.UID < 0 {
		return nil
	}
	return o.missing(unix.Fchownat(dir, name, o.UID, o.GID, unix.AT_SYMLINK_NOFOLLOW))
}

// overflow is the id that a user namespace shows for all those that it does not
// have, such as the machine's root in a sandbox with one id.
const overflow = 65534

// Restore gives name under dir the owner that Stat told of the same file or another
// one. What belonged to an id that the user namespace does not have keeps that of
// this process.
func (o Owner) Restore(dir int, name string) error {
	err := o.ChownAt(dir, name)
	if !errors.Is(err, fault.ErrDenied) {
		return err
	}
	kept := o
	if kept.UID == overflow {
		kept.UID = -1
	}
	if kept.GID == overflow {
		kept.GID = -1
	}
	if unix.Fchownat(dir, name, kept.UID, kept.GID, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return nil
	}
	return err
}

// missing explains the kernel's error for an id that the user namespace does not
// have.
func (o Owner) missing(err error) error {
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: the sandbox does not have both user id %d and group id %d", fault.ErrDenied, o.UID, o.GID)
	}
	return err
}

// MkdirAll opens the folder path below dir and makes missing folders with mode
// 0755 and owner o. path is clean and relative; "." is dir itself.
func MkdirAll(dir int, path string, o Owner) (int, error) {
	at, err := Open(dir, ".", unix.O_DIRECTORY|unix.O_PATH, 0)
	if err != nil || path == "." || path == "" {
		return at, err
	}
	for part := range strings.SplitSeq(path, "/") {
		next, err := Sub(at, part, unix.O_PATH)
		if errors.Is(err, syscall.ENOENT) {
			if err = unix.Mkdirat(at, part, 0o755); err == nil || errors.Is(err, syscall.EEXIST) {
				err = o.ChownAt(at, part)
			}
			if err == nil {
				next, err = Sub(at, part, unix.O_PATH)
			}
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, fault.Errno(err)
		}
		at = next
	}
	return at, nil
}

// Regular opens a regular file by its absolute name for reading. Unlike File it
// follows the links of the sandbox, but not those of procfs.
func Regular(name string) (fd int, st unix.Stat_t, err error) {
	fd, err = plain(unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	}))
	if err != nil {
		return -1, st, err
	}
	return regular(fd)
}

// regular refuses a descriptor that is not a regular file.
func regular(fd int) (_ int, st unix.Stat_t, err error) {
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("%w: not a regular file", fault.ErrUnsafe)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, st, fault.Errno(err)
	}
	return fd, st, nil
}
