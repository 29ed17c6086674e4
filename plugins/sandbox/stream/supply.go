package stream

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// After its first connections sandboxd never dials again. The core makes
// further connections as socket pairs and passes one end as a descriptor. So
// the core can close its listener and remove the socket before any program of
// the sandbox runs. If the listener stayed, every process inside could connect
// to it. Rejecting those by pid works, but a flood of them fills the queue in
// which sandboxd's own connects wait (3.4 s for an Attach, measured).
//
// Descriptors go from the core to the sandbox only. Otherwise a compromised
// sandboxd could pass files of its choice to the core.

// Giver is the core's side: it makes connections. Safe for concurrent use.
type Giver interface {
	// Give passes one end of a new connection to sandboxd and returns the
	// other. There is no round trip: written data waits until sandboxd takes
	// the connection.
	Give(Label) (net.Conn, error)
	Close() error
}

// Taker is sandboxd's side. One goroutine uses it.
type Taker interface {
	// Take waits for the next connection.
	Take() (Label, net.Conn, error)
	Close() error
}

// giveTime is how long sandboxd may leave a passed connection unread.
const giveTime = 5 * time.Second

// NewGiver passes connections as descriptors on the Supply connection c, which
// it owns from then on.
func NewGiver(c *net.UnixConn) Giver { return &giver{conn: c} }

// NewTaker returns the other end of NewGiver.
func NewTaker(c *net.UnixConn) Taker { return taker{c} }

type giver struct {
	mu   sync.Mutex // guards the deadline
	conn *net.UnixConn
}

func (g *giver) Close() error { return g.conn.Close() }

func (g *giver) Give(l Label) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("hand over a connection: socketpair: %w", err)
	}
	defer unix.Close(fds[1]) //nolint:errcheck // sandboxd has its own copy, or passing it failed
	ours, err := fileConn(fds[0])
	if err != nil {
		return nil, fmt.Errorf("hand over a connection: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.conn.SetWriteDeadline(time.Now().Add(giveTime))
	if _, _, err := g.conn.WriteMsgUnix(l.bytes(), unix.UnixRights(fds[1]), nil); err != nil {
		return nil, errors.Join(fmt.Errorf("hand over a connection: %w", err), ours.Close())
	}
	return ours, nil
}

type taker struct{ conn *net.UnixConn }

func (t taker) Close() error { return t.conn.Close() }

func (t taker) Take() (Label, net.Conn, error) {
	var b [labelSize]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := t.conn.ReadMsgUnix(b[:], oob) // close-on-exec is Go's default here
	if err != nil {
		return Label{}, nil, fmt.Errorf("take a connection: %w", err)
	}
	fd, err := descriptor(oob[:oobn])
	if err != nil {
		return Label{}, nil, fmt.Errorf("take a connection: %w", err)
	}
	l, err := parseLabel(b[:n]) // one label per message: a descriptor ends a read
	if err != nil {
		_ = unix.Close(fd)
		return Label{}, nil, fmt.Errorf("take a connection: %w", err)
	}
	c, err := fileConn(fd)
	return l, c, err
}

// descriptor takes the one descriptor out of a control message.
func descriptor(oob []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("%d control messages with a label, want 1: %w", len(messages), errors.Join(err, errNoDescriptor))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return -1, fmt.Errorf("%d descriptors with a label, want 1: %w", len(fds), errors.Join(err, errNoDescriptor))
	}
	return fds[0], nil
}

var errNoDescriptor = errors.New("label without descriptor")

// fileConn converts fd to a connection and owns it.
func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "stream")
	c, err := net.FileConn(f) // duplicates
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return c, nil
}
