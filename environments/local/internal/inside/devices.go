package inside

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// devices makes a minimal /dev. Nodes cannot be made in a user namespace, so it
// binds the host's nodes onto empty files.
func (b *builder) devices() error {
	const dev = root + "/dev"
	for _, f := range []Folder{{"", 0o755}, {"/pts", 0o755}, {"/shm", 0o1777}} {
		if err := folder(dev+f.Path, f.Mode); err != nil {
			return err
		}
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		fd, err := unix.Open(dev+"/"+name, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o666)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := unix.Close(fd); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, dev+"/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", name, err)
		}
	}
	for _, l := range []Link{
		{"ptmx", "pts/ptmx"},
		{"fd", "/proc/self/fd"},
		{"stdin", "/proc/self/fd/0"},
		{"stdout", "/proc/self/fd/1"},
		{"stderr", "/proc/self/fd/2"},
	} {
		if err := os.Symlink(l.Target, dev+"/"+l.Name); err != nil {
			return err
		}
	}
	if n := b.plan.ShmMiB; n > 0 {
		options := "mode=1777,size=" + strconv.FormatInt(n, 10) + "m"
		if err := unix.Mount("shm", dev+"/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("shm: %w", err)
		}
	}
	options := "newinstance,ptmxmode=0666,mode=0620"
	if b.plan.PtsGroup {
		options += ",gid=5"
	}
	if err := unix.Mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("pts: %w", err)
	}
	return nil
}

// proc mounts the process table of our pid namespace. The kernel refuses it
// with EPERM if other mounts mask parts of the /proc that we came from, as in a
// container. There is no way around that.
func (b *builder) proc() error {
	const at = root + "/proc"
	if err := os.Mkdir(at, 0o555); err != nil {
		return err
	}
	if err := unix.Mount("proc", at, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	// The settings of our own namespaces belong to our user 0.
	if err := unix.Mount(at+"/sys", at+"/sys", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind sys: %w", err)
	}
	return readOnly(at + "/sys")
}

// routes blocks link-local addresses, which no sandbox needs: clouds serve the
// machine's own credentials there. Commands cannot undo it, because NET_ADMIN
// is not among their capabilities.
func (b *builder) routes() error {
	if b.plan.Nameserver == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// struct rtentry of linux/route.h, where uintptr is unsigned long.
	type rtentry struct {
		_                     uintptr
		dst, gateway, genmask unix.RawSockaddrInet4
		flags                 uint16
		_                     int16
		_, _                  uintptr
		_                     int16
		_                     *byte
		_, _                  uintptr
		_                     uint16
	}
	const up, reject = 0x1, 0x200
	r := rtentry{flags: up | reject}
	for _, a := range []*unix.RawSockaddrInet4{&r.dst, &r.gateway, &r.genmask} {
		a.Family = unix.AF_INET
	}
	r.dst.Addr, r.genmask.Addr = [4]byte{169, 254, 0, 0}, [4]byte{255, 255, 0, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return errno
	}
	return nil
}

// resolver writes which server resolves names.
func (b *builder) resolver() error {
	if b.plan.Nameserver == "" {
		return nil
	}
	return os.WriteFile("/etc/resolv.conf", []byte("nameserver "+b.plan.Nameserver+"\n"), 0o644)
}

// loopback switches lo on.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}
