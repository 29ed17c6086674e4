package host

import (
	"net"
	"sync"
)

// Listener is a net.Listener that is given its connections one by one, such as
// those of a port inside. Safe for concurrent use.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewListener returns a listener without connections.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Serve passes a connection to the listener and returns when it is closed. It
// fits [Sandbox.Listen].
func (l *Listener) Serve(c net.Conn) {
	t := &tracked{Conn: c, closed: make(chan struct{})}
	select {
	case l.conns <- t:
		<-t.closed
	case <-l.done:
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "inside", Net: "unix"} }

// tracked is a connection that signals when it is closed.
type tracked struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	err := t.Conn.Close()
	t.once.Do(func() { close(t.closed) })
	return err
}
