// Package link makes the network device that connects a container to the other
// containers of its sandbox, and gives it to the core, which carries the
// packets.
//
// It runs in the first half of sandboxd, which alone has the capability to
// configure a network, before any program of the container. So it must not
// import anything that makes a short-lived program start slowly.
package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Files in a control folder, as a container sees them.
const (
	AddressFile = "/berth/address" // text: its address and the length of the prefix
	Socket      = "/berth/link"    // takes the device
)

// MTU is the size of the largest packet, in bytes. Large packets make up for
// the way through the core.
const MTU = 65_000

// Open makes the device, if the control folder asks for one, and gives it to the
// core. If it cannot make it, it tells the core why.
func Open() error {
	text, err := os.ReadFile(AddressFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	device, made := open(strings.TrimSpace(string(text)))
	if made == nil {
		defer func() { _ = unix.Close(device) }()
	}
	return give(device, made)
}

// open returns the device's file descriptor.
func open(address string) (_ int, err error) {
	p, err := netip.ParsePrefix(address)
	if err != nil || !p.Addr().Is4() {
		return 0, fmt.Errorf("%s is %q", AddressFile, address)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	r, err := unix.NewIfreq("eth%d") // the first that is free
	if err != nil {
		return 0, err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return 0, fmt.Errorf("make a network device: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(s) }()
	name := r.Name()
	mask := make([]byte, 4)
	binary.BigEndian.PutUint32(mask, ^uint32(0)<<(32-p.Bits()))
	for _, step := range []struct {
		request uint
		set     func(*unix.Ifreq) error
	}{
		{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(p.Addr().AsSlice()) }},
		{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask) }},
		{unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(MTU); return nil }},
		{unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		if r, err = unix.NewIfreq(name); err != nil {
			return 0, err
		}
		if err = step.set(r); err != nil {
			return 0, err
		}
		if err = unix.IoctlIfreq(s, step.request, r); err != nil {
			return 0, fmt.Errorf("configure %s (%#x): %w", name, step.request, err)
		}
	}
	return fd, nil
}

// give sends the device, or the reason why there is none, and waits until the
// core has it.
func give(device int, made error) error {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	if err = unix.Connect(s, &unix.SockaddrUnix{Name: Socket}); err != nil {
		return fmt.Errorf("connect %s: %w", Socket, err)
	}
	if made != nil {
		_, err = unix.Write(s, []byte(made.Error()))
		return err
	}
	if err = unix.Sendmsg(s, []byte{0}, unix.UnixRights(device), nil, 0); err != nil {
		return fmt.Errorf("give the network device to the core: %w", err)
	}
	_, err = unix.Read(s, make([]byte, 1))
	return err
}
