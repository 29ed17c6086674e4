package runtimedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Own returns this user's folder in a shared folder that every user can write
// to. It makes the folder if there is none.
func (f Finder) Own(shared string) (string, error) { return f.own(shared, false) }

// own returns berth-UID in a shared folder. With an error it returns our folder that
// cannot be used.
func (f Finder) own(shared string, sockets bool) (string, error) {
	if err := safe(shared); err != nil {
		return "", err
	}
	dir := filepath.Join(shared, "berth-"+strconv.Itoa(f.UID))
	return dir, usable(dir, sockets)
}

// Make makes dir, which may exist, and returns what is wrong with it. It must
// be a folder of ours, not a link, that no other user can enter. No other user
// may be able to replace it in its parent folder.
func Make(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return owned(dir)
}

// folder looks at dir, and returns why it is not a folder of one of these users.
func folder(dir string, look func(string) (fs.FileInfo, error), owners ...int) (fs.FileMode, error) {
	info, err := look(dir)
	switch {
	case err != nil:
		return 0, err
	case !info.IsDir():
		return 0, fmt.Errorf("%s is not a folder", dir)
	case !slices.Contains(owners, owner(info)):
		return 0, fmt.Errorf("%s belongs to user %d", dir, owner(info))
	}
	return info.Mode(), nil
}

// owned returns why dir is not a folder of ours that only we can enter.
func owned(dir string) error {
	mode, err := folder(dir, os.Lstat, os.Geteuid())
	if err == nil && mode.Perm()&0o077 != 0 {
		err = fmt.Errorf("%s is open to others (mode %#o): chmod 700 %s", dir, mode.Perm(), dir)
	}
	return err
}

// Ours returns why dir is not a folder of ours in which only we can create or
// rename files. Other users may read it.
func Ours(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is not an absolute path", dir)
	}
	mode, err := folder(dir, os.Stat, os.Geteuid())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not there", dir)
	case err == nil && mode.Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others (mode %#o)", dir, mode.Perm())
	}
	return err
}

// nobody is the owner of files whose owner has no id in our user namespace,
// such as the machine's root.
const nobody = 65534

// safe returns why other users could replace what we create in dir. They may be
// able to write to dir only if it is sticky.
func safe(dir string) error {
	mode, err := folder(dir, os.Stat, os.Geteuid(), 0, nobody)
	if err == nil && mode.Perm()&0o022 != 0 && mode&os.ModeSticky == 0 {
		err = fmt.Errorf("%s can be written to by others and is not sticky", dir)
	}
	return err
}

func owner(info fs.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(st.Uid)
}

// usable makes dir and returns what is wrong with it. sockets says that it will
// contain sockets and programs.
func usable(dir string, sockets bool) error {
	switch {
	case !filepath.IsAbs(dir):
		return fmt.Errorf("%s is not an absolute path", dir)
	case sockets && len(dir) > MaxPath:
		return tooLong(dir)
	}
	if err := Make(dir); err != nil {
		return err
	}
	if err := Local(dir); err != nil {
		return err
	}
	var st unix.Statfs_t
	if sockets && unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("programs may not be executed in %s (noexec)", dir)
	}
	return Writable(dir)
}

func tooLong(dir string) error {
	return fmt.Errorf("%s: the path has %d bytes, more than %d, too long for the sockets in it", dir, len(dir), MaxPath)
}

// Writable checks that a file can be written in dir, by writing one.
func Writable(dir string) error {
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// leastMiB is the space that a run needs for the program that is PID 1 in its
// sandboxes, and for a few attempts.
const leastMiB = 32

// roomy returns why dir has too little space for a run.
func roomy(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize >> 20; free < leastMiB { //nolint:gosec // less than 2^63
		return fmt.Errorf("%s has %d MiB left, a run needs %d", dir, free, leastMiB)
	}
	return nil
}

// remote are the magic numbers (statfs) of file systems whose locks, sockets or
// owners are not reliable.
var remote = map[int64]string{
	0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x00c36400: "Ceph",
	0x65735546: "FUSE", 0x01021997: "9p", 0x19830326: "BeeGFS", 0xaad7aaea: "PanFS", 0x20030528: "OrangeFS", 0x5346414f: "AFS",
}

// Shared names the shared file system that a folder is on; empty: it is on none.
func Shared(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	return remote[int64(st.Type)&0xffffffff] //nolint:unconvert // int32 on some machines
}

// Local refuses a folder that does not exist or is not on this machine.
func Local(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	if name := Shared(dir); name != "" {
		return fmt.Errorf("%s is on a shared file system (%s), not on a disk of this machine", dir, name)
	}
	return nil
}

// InMemory reports whether dir is on a file system in memory.
func InMemory(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && (st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC)
}

// kept reports whether the files that a user leaves in /dev/shm outlive the
// user's sessions. logind removes them after the last session (RemoveIPC, on by
// default) unless the user is a system user, and a run may belong to no
// session.
func kept(uid int) bool {
	_, err := os.Stat("/run/systemd/users")
	return uid < 1000 || errors.Is(err, fs.ErrNotExist)
}
