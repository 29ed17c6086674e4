package host

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A packet reaches the container that owns its destination, and only if its
// source is the container that sent it.
func TestANetworkCarriesPacketsOfItsContainersOnly(t *testing.T) {
	n := NewNetwork()
	defer n.Close()
	var ends [3]*os.File
	for i := range ends {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = os.NewFile(uintptr(fds[0]), "end")
		defer ends[i].Close()
		if err = n.add(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), os.NewFile(uintptr(fds[1]), "device")); err != nil {
			t.Fatal(err)
		}
	}
	packet := func(from, to byte, text string) []byte {
		p := make([]byte, 20, 64)
		p[0] = 0x45
		copy(p[12:], []byte{10, 0, 0, from, 10, 0, 0, to})
		return append(p, text...)
	}
	send := func(p []byte) {
		if _, err := ends[0].Write(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, dropped := range [][]byte{
		packet(3, 2, "of another"), packet(1, 9, "to nobody"), packet(1, 1, "to itself"), []byte("short"), append([]byte{0x60}, make([]byte, 60)...),
	} {
		send(dropped)
	}
	want := packet(1, 2, "good")
	send(want)
	buf := make([]byte, 100)
	_ = ends[1].SetReadDeadline(time.Now().Add(10 * time.Second))
	if k, err := ends[1].Read(buf); err != nil || !bytes.Equal(buf[:k], want) {
		t.Errorf("got %q, %v; want %q", buf[:k], err, want)
	}
	for _, i := range []int{0, 2} { // all packets have been carried by now
		_ = ends[i].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if k, err := ends[i].Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("container %d got %q, %v", i+1, buf[:k], err)
		}
	}
}
