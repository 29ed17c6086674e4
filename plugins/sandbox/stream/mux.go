package stream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

// Experimental: the core accepts no sandbox behind a byte stream yet.
//
// If nothing can be mounted or connected, a backend gives one byte stream to
// sandboxd, and yamux carries all connections on it. Each begins with its
// label, and only the core opens them.

// NewMuxGiver returns the core's end of a byte stream. Closing it closes c.
func NewMuxGiver(c io.ReadWriteCloser) (Giver, error) {
	s, err := yamux.Client(c, muxConfig())
	if err != nil {
		return nil, fmt.Errorf("yamux: %w", err)
	}
	return muxGiver{s}, nil
}

// NewMuxTaker returns sandboxd's end of a byte stream. Closing it closes c.
func NewMuxTaker(c io.ReadWriteCloser) (Taker, error) {
	s, err := yamux.Server(c, muxConfig())
	if err != nil {
		return nil, fmt.Errorf("yamux: %w", err)
	}
	return muxTaker{s}, nil
}

func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false // the lease detects a dead peer
	c.MaxStreamWindowSize = window
	c.StreamCloseTimeout = 10 * time.Second
	c.LogOutput = io.Discard
	return c
}

type muxGiver struct{ s *yamux.Session }

func (g muxGiver) Close() error { return g.s.Close() }

func (g muxGiver) Give(l Label) (net.Conn, error) {
	c, err := g.s.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("open a stream to sandboxd: %w", err)
	}
	if err := l.Send(c); err != nil {
		return nil, errors.Join(fmt.Errorf("open a stream to sandboxd: %w", err), c.Close())
	}
	return muxConn{c}, nil
}

type muxTaker struct{ s *yamux.Session }

func (t muxTaker) Close() error { return t.s.Close() }

func (t muxTaker) Take() (Label, net.Conn, error) {
	c, err := t.s.AcceptStream()
	if err != nil {
		return Label{}, nil, fmt.Errorf("accept a stream: %w", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(giveTime))
	l, err := ReadLabel(c)
	if err != nil {
		return Label{}, nil, errors.Join(err, c.Close())
	}
	_ = c.SetReadDeadline(time.Time{})
	return l, muxConn{c}, nil
}

// muxConn gives a yamux stream the two kinds of close that a socket has:
// yamux's Close only ends writing and leaves a blocked Read blocked.
type muxConn struct{ *yamux.Stream }

func (c muxConn) CloseWrite() error { return c.Stream.Close() }

func (c muxConn) Close() error {
	err := c.Stream.Close()
	return errors.Join(err, c.SetDeadline(time.Unix(1, 0)))
}
