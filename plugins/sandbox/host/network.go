package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/link"
)

// Network carries packets between the containers of one sandbox, each of which
// has its own network namespace. It is a switch: a packet goes from the
// container that owns its source address to the one that owns its destination,
// and anything else is dropped. So nothing but these containers can be reached,
// with any protocol of IPv4 and on any port. Safe for concurrent use.
type Network struct {
	mu     sync.RWMutex
	closed bool
	links  map[netip.Addr]*os.File

	listeners []*net.UnixListener
	work      sync.WaitGroup
}

// NewNetwork returns a network without containers.
func NewNetwork() *Network { return &Network{links: map[netip.Addr]*os.File{}} }

// linkTime bounds the message of a sandboxd about its device.
const linkTime = 30 * time.Second

// Joining is a container on its way into a network.
type Joining struct{ done chan error }

// Join makes the container of a control folder part of the network, under an
// address. It is to be called before the container starts.
func (n *Network) Join(control string, address netip.Prefix) (*Joining, error) {
	if err := os.WriteFile(filepath.Join(control, filepath.Base(link.AddressFile)), []byte(address.String()), 0o444); err != nil { //nolint:gosec // the sandbox's ids differ from ours
		return nil, fmt.Errorf("control folder: %w", err)
	}
	l, err := listen(filepath.Join(control, filepath.Base(link.Socket)))
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.listeners = append(n.listeners, l)
	n.mu.Unlock()
	j := &Joining{done: make(chan error, 1)}
	n.work.Go(func() {
		j.done <- n.accept(l, address.Addr())
		_ = l.Close()
	})
	return j, nil
}

// Wait waits until sandboxd of the container has joined, or cannot. It is to be
// called once at most.
func (j *Joining) Wait(ctx context.Context) error {
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// accept takes the network device of one container. What connects is sandboxd,
// before anything else runs in its container.
func (n *Network) accept(l *net.UnixListener, address netip.Addr) error {
	c, err := l.AcceptUnix()
	if err != nil {
		return fmt.Errorf("network of the containers: %w", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(linkTime))
	text, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4))
	k, o, _, _, err := c.ReadMsgUnix(text, oob)
	if err != nil {
		return fmt.Errorf("network of the containers: %w", err)
	}
	fds, err := descriptors(oob[:o])
	if err != nil || len(fds) != 1 {
		return fmt.Errorf("network of the containers: sandboxd cannot make a device: %q", text[:k])
	}
	if err = unix.SetNonblock(fds[0], true); err != nil {
		return errors.Join(err, unix.Close(fds[0]))
	}
	if err = n.add(address, os.NewFile(uintptr(fds[0]), "link")); err != nil {
		return err
	}
	_, err = c.Write([]byte{1}) // sandboxd continues
	return err
}

func descriptors(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, err
	}
	return unix.ParseUnixRights(&messages[0])
}

func (n *Network) add(address netip.Addr, device *os.File) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.links[address] != nil {
		return errors.Join(errors.New("network of the containers: it is closed, or has this address"), device.Close())
	}
	n.links[address] = device
	n.work.Go(func() { n.carry(address, device) })
	return nil
}

// carry passes on what a container sends, until its device is closed or gone.
func (n *Network) carry(from netip.Addr, device *os.File) {
	buf := make([]byte, link.MTU)
	for {
		k, err := device.Read(buf)
		if err != nil {
			return
		}
		source, to, ok := ends(buf[:k])
		if !ok || source != from {
			continue
		}
		n.mu.RLock()
		next := n.links[to]
		n.mu.RUnlock()
		if next != nil && next != device {
			_, _ = next.Write(buf[:k]) // a packet may be lost
		}
	}
}

// ends are the addresses of an IPv4 packet.
func ends(p []byte) (from, to netip.Addr, ok bool) {
	if len(p) < 20 || p[0]>>4 != 4 {
		return from, to, false
	}
	return netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20])), true
}

// Close removes all containers from the network.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	for _, device := range n.links {
		_ = device.Close()
	}
	for _, l := range n.listeners {
		_ = l.Close()
	}
	n.mu.Unlock()
	n.work.Wait()
}
