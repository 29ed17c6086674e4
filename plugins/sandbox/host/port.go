package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// Port is a loopback port inside whose connections the host serves.
type Port struct {
	Number int

	end     context.CancelFunc
	mu      sync.Mutex
	closed  bool
	open    map[net.Conn]struct{}
	workers sync.WaitGroup
}

// Listen opens a loopback port inside (0: any free one) and calls serve for
// each connection to it, in its own goroutine; the connection is closed
// when serve returns. ctx covers only the opening; the port stays open until
// Close or the end of the sandbox.
func (s *Sandbox) Listen(ctx context.Context, port int, serve func(net.Conn)) (*Port, error) {
	if port < 0 || port > 0xffff {
		return nil, fmt.Errorf("listen inside: %w: port %d", fault.ErrInvalid, port)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	st, err := s.control.Listen(life, &pb.ListenRequest{Port: uint32(port)})
	var first *pb.ListenReply
	if err == nil {
		first, err = st.Recv()
	}
	if err != nil || !stop() {
		end()
		return nil, fmt.Errorf("listen inside on port %d: %w", port, errors.Join(fault.Sandbox.Decode(err), context.Cause(ctx)))
	}
	p := &Port{Number: int(first.GetPort()), end: end, open: map[net.Conn]struct{}{}}
	p.workers.Go(func() { p.accept(s, st, serve) })
	return p, nil
}

// accept passes on a connection for each label. sandboxd sends nothing but the
// label, which only names the connection that it gets.
func (p *Port) accept(s *Sandbox, st grpc.ServerStreamingClient[pb.ListenReply], serve func(net.Conn)) {
	for {
		m, err := st.Recv()
		if err != nil {
			return
		}
		id, err := stream.ParseID(m.GetLabel())
		if err != nil {
			continue
		}
		c, err := s.giver.Give(stream.Label{Kind: stream.Accepted, ID: id})
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			_ = c.Close()
			return
		}
		p.open[c] = struct{}{}
		p.workers.Go(func() { // under the lock: Close waits only for what it has seen
			serve(c)
			_ = c.Close()
			p.mu.Lock()
			delete(p.open, c)
			p.mu.Unlock()
		})
		p.mu.Unlock()
	}
}

// Close closes the port and its connections and waits for serve.
func (p *Port) Close() error {
	p.end()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.workers.Wait()
	return nil
}

// Dial connects to a loopback port inside. sandbox.ErrNotFound means that
// nothing listens there.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	id := stream.NewID()
	if port < 1 || port > 0xffff {
		return nil, fmt.Errorf("dial inside: %w: port %d", fault.ErrInvalid, port)
	}
	if _, err := s.control.Dial(ctx, &pb.DialRequest{Port: uint32(port), Label: id[:]}); err != nil {
		return nil, wrap(fmt.Sprintf("dial port %d inside", port), err)
	}
	c, err := s.giver.Give(stream.Label{Kind: stream.Dialed, ID: id})
	if err != nil {
		return nil, fmt.Errorf("dial port %d inside: %w", port, err)
	}
	return c, nil
}

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
