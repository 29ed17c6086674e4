// Package stream holds what the core and sandboxd share below gRPC: a fixed
// label that says what a connection is for, two ways to pass connections
// (descriptors, or yamux on one byte stream), and gRPC on a single connection,
// with sandboxd as the server.
//
// It must not know what a connection carries, and must never pass anything from
// the sandbox to the core.
package stream

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
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

// Kind says what a connection carries.
type Kind byte

// The kinds of connection.
const (
	Control  Kind = 'C' // gRPC SandboxControl; the first connection
	Supply   Kind = 'F' // labels with descriptors, to sandboxd; the second
	Shell    Kind = 'S' // gRPC SandboxShell; the ID is that of an Attach
	Accepted Kind = 'L' // raw bytes; the ID was sent in the answer to a Listen
	Refusal  Kind = 'X' // text: why sandboxd does not serve; instead of Control
	Dialed   Kind = 'D' // raw bytes; the ID is that of a Dial
)

// ID names one connection.
type ID [16]byte

// NewID makes an ID that cannot be guessed.
func NewID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// ParseID reads an ID from the bytes of a message.
func ParseID(b []byte) (id ID, err error) {
	if len(b) != len(id) {
		return id, fmt.Errorf("label has %d bytes, want %d", len(b), len(id))
	}
	copy(id[:], b)
	return id, nil
}

// Label is the first thing sent on a connection. Its size is fixed, so that the
// reader needs no buffer that could take bytes after it.
type Label struct {
	Kind Kind
	ID   ID
}

const (
	magic     = "brt1" // changes with the label, because there is no negotiation
	labelSize = len(magic) + 1 + len(ID{})
)

// Send writes l to w.
func (l Label) Send(w io.Writer) error {
	_, err := w.Write(l.bytes())
	return err
}

func (l Label) bytes() []byte {
	return append(append(make([]byte, 0, labelSize), magic+string(rune(l.Kind))...), l.ID[:]...)
}

// ReadLabel reads exactly one label. The caller sets a deadline, because the
// peer cannot be trusted.
func ReadLabel(r io.Reader) (Label, error) {
	var b [labelSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Label{}, fmt.Errorf("read label: %w", err)
	}
	return parseLabel(b[:])
}

func parseLabel(b []byte) (l Label, err error) {
	if len(b) != labelSize || string(b[:len(magic)]) != magic {
		return l, fmt.Errorf("%q is not a label", b)
	}
	l.Kind = Kind(b[len(magic)])
	switch l.Kind {
	case Control, Supply, Shell, Accepted, Dialed, Refusal:
	default:
		return Label{}, fmt.Errorf("label of unknown kind %q", byte(l.Kind))
	}
	copy(l.ID[:], b[len(magic)+1:])
	return l, nil
}
