// Package port carries connections between the loopback of a sandbox and the
// core. The core opens the other half of each connection.
//
// It must listen and connect only on the loopback, and must not look at the
// data.
package port

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// Ports holds the connections that wait for their other half from the core. The
// zero value is ready.
type Ports struct {
	mu      sync.Mutex
	waiting map[stream.Label]chan net.Conn
	numbers []uint32 // the ports that we listen on
}

// supplyTime is how long the core may take to supply a connection.
const supplyTime = 10 * time.Second

// maxPerPort is how many connections the sandbox can hold open on one port.
const maxPerPort = 128

// expect announces that a connection with this label will come. It must be
// called before the core is told the label. The caller must call cancel at the
// end.
func (p *Ports) expect(l stream.Label) (got <-chan net.Conn, cancel func()) {
	c := make(chan net.Conn, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		p.waiting = map[stream.Label]chan net.Conn{}
	}
	p.waiting[l] = c
	return c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, l)
		select { // the connection came, and nothing took it
		case conn := <-c:
			_ = conn.Close()
		default:
		}
	}
}

// Supply passes a connection to the call that waits for it.
func (p *Ports) Supply(l stream.Label, c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.waiting[l]
	if to == nil {
		_ = c.Close()
		return
	}
	delete(p.waiting, l)
	to <- c // has room
}

// Own reports whether a socket is one of ours.
func (p *Ports) Own(s *pb.Socket) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.GetNetwork() == "tcp" && slices.ContainsFunc(p.numbers, func(n uint32) bool {
		return strings.HasSuffix(s.GetAddress(), ":"+strconv.Itoa(int(n)))
	})
}

// Listen accepts connections on the loopback of the sandbox. It listens nowhere
// else: the core decides what a sandbox reaches, and the sandbox has no other
// network.
func (p *Ports) Listen(q *pb.ListenRequest, st grpc.ServerStreamingServer[pb.ListenReply]) error {
	listeners, port, err := listen(st.Context(), q.GetPort())
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.numbers = append(p.numbers, port)
	p.mu.Unlock()
	var workers sync.WaitGroup
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
		workers.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.Index(p.numbers, port); i >= 0 {
			p.numbers = slices.Delete(p.numbers, i, i+1)
		}
	}()
	if err := st.Send(&pb.ListenReply{Is: &pb.ListenReply_Port{Port: port}}); err != nil {
		return err
	}
	a := &acceptor{ports: p, ctx: st.Context(), slots: make(chan struct{}, maxPerPort), announce: make(chan stream.ID)}
	for _, l := range listeners {
		workers.Go(func() { a.accept(l) })
	}
	for {
		select {
		case <-st.Context().Done():
			return st.Context().Err()
		case id := <-a.announce:
			if err := st.Send(&pb.ListenReply{Is: &pb.ListenReply_Label{Label: id[:]}}); err != nil {
				return err
			}
		}
	}
}

// listen opens a port on the loopback, also with IPv6 if there is IPv6, because
// some programs take "localhost" for the IPv6 address.
func listen(ctx context.Context, port uint32) (out []net.Listener, number uint32, err error) {
	if port > 0xffff {
		return nil, 0, fmt.Errorf("%w: port %d", fault.ErrInvalid, port)
	}
	var config net.ListenConfig
	four, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, 0, fmt.Errorf("%w: port %d is in use", fault.ErrExists, port)
		}
		return nil, 0, fault.Errno(err)
	}
	if a, ok := four.Addr().(*net.TCPAddr); ok {
		number = uint32(a.Port)
	}
	out = append(out, four)
	if six, err := config.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(int(number)))); err == nil {
		out = append(out, six)
	}
	return out, number, nil
}

// acceptor carries connections of one port to the core while the call of Listen
// lasts.
type acceptor struct {
	ports    *Ports
	ctx      context.Context // of the call to Listen
	slots    chan struct{}
	announce chan stream.ID
}

func (a *acceptor) accept(l net.Listener) {
	var workers sync.WaitGroup
	defer workers.Wait()
	for {
		select {
		case a.slots <- struct{}{}:
		case <-a.ctx.Done():
			return
		}
		inside, err := l.Accept()
		if err != nil {
			<-a.slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors: do not spin
			continue
		}
		workers.Go(func() {
			defer func() { <-a.slots }()
			a.carry(inside)
		})
	}
}

func (a *acceptor) carry(inside net.Conn) {
	defer inside.Close()
	l := stream.Label{Kind: stream.Accepted, ID: stream.NewID()}
	got, cancel := a.ports.expect(l)
	defer cancel()
	select {
	case a.announce <- l.ID:
	case <-a.ctx.Done():
		return
	}
	outside, err := await(a.ctx, got)
	if err != nil {
		return
	}
	stop := context.AfterFunc(a.ctx, func() { _, _ = inside.Close(), outside.Close() })
	defer stop()
	splice(inside, outside)
}

// await waits until the core supplies the connection.
func await(ctx context.Context, got <-chan net.Conn) (net.Conn, error) {
	t := time.NewTimer(supplyTime)
	defer t.Stop()
	select {
	case c := <-got:
		return c, nil
	case <-t.C:
		return nil, fmt.Errorf("%w: the core gives no connection", fault.ErrTimeout)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Dial connects to a port of the sandbox. The core supplies its half of the
// connection after the answer.
func (p *Ports) Dial(ctx context.Context, q *pb.DialRequest) (*pb.DialReply, error) {
	id, err := stream.ParseID(q.GetLabel())
	if err != nil || q.GetPort() < 1 || q.GetPort() > 0xffff {
		return nil, fmt.Errorf("%w: port %d, %w", fault.ErrInvalid, q.GetPort(), errors.Join(err))
	}
	port := strconv.Itoa(int(q.GetPort()))
	var dialer net.Dialer
	inside, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		var six error
		if inside, six = dialer.DialContext(ctx, "tcp6", net.JoinHostPort("::1", port)); six != nil {
			if errors.Is(err, syscall.ECONNREFUSED) {
				return nil, fmt.Errorf("%w: no process listens on port %s", fault.ErrNotFound, port)
			}
			return nil, fault.Errno(err)
		}
	}
	got, cancel := p.expect(stream.Label{Kind: stream.Dialed, ID: id})
	go func() {
		defer cancel()
		defer inside.Close()
		if outside, err := await(context.WithoutCancel(ctx), got); err == nil { // the connection outlives the call
			splice(inside, outside)
		}
	}()
	return &pb.DialReply{}, nil
}

// splice copies both ways until both directions have ended. It passes on a
// half-close, because some protocols end a request with EOF. On Linux io.Copy
// between two sockets uses splice(2), so the bytes never enter this process.
func splice(a, b net.Conn) {
	var back sync.WaitGroup
	back.Go(func() { oneWay(a, b) })
	oneWay(b, a)
	back.Wait()
	_, _ = a.Close(), b.Close()
}

func oneWay(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	if h, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
		_ = h.CloseWrite()
		return
	}
	_, _ = dst.Close(), src.Close() // after an error the other direction is of no use
}
