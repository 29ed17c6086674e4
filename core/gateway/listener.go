package gateway

import (
	"net"
	"sync"
)

// pipe is a listener that is given its connections one by one.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipe() *pipe { return &pipe{conns: make(chan net.Conn), done: make(chan struct{})} }

// serve passes a connection to the listener and returns when it is closed.
func (p *pipe) serve(c net.Conn) {
	t := &tracked{Conn: c, closed: make(chan struct{})}
	select {
	case p.conns <- t:
		<-t.closed
	case <-p.done:
	}
}

// Accept implements net.Listener.
func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr implements net.Listener.
func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "inside", Net: "unix"} }

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
