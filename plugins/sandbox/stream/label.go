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
	"fmt"
	"io"
)

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
