package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/berth-eval/berth/plugins/fault"
)

// Tuning shared by both ends. gRPC's defaults (64 KiB windows, 32 KiB buffers)
// are made for networks. On a local socket they halve the throughput.
const (
	// Chunk is the largest piece of output or file in one message, in bytes.
	Chunk = 256 << 10
	// MaxMessage is the largest message that either side accepts, in bytes.
	MaxMessage = 20 << 20

	window      = 4 << 20 // how far a sender may run ahead of a slow reader
	bufferBytes = 128 << 10
	maxStreams  = 256 // calls at once on one connection

	// workers execute calls one after the other, on stacks that have already
	// grown. If all are busy, a call gets its own goroutine.
	workers = 2
)

// Writer sends what is written to it in messages of at most Chunk bytes, the last one
// with Flush. send must not keep the bytes.
func Writer(send func(b []byte) error) *bufio.Writer {
	return bufio.NewWriterSize(sending(send), Chunk)
}

type sending func(b []byte) error

func (s sending) Write(b []byte) (int, error) {
	for part := range slices.Chunk(b, Chunk) { // a caller may write a whole file at once
		if err := s(part); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// NewServer makes a server for Serve. It is the only place that builds one:
// errors get their reason here (package fault), and a panic in one call does
// not end the others.
func NewServer() *grpc.Server {
	return grpc.NewServer(
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.WriteBufferSize(bufferBytes), grpc.ReadBufferSize(bufferBytes),
		grpc.MaxConcurrentStreams(maxStreams), grpc.NumStreamWorkers(workers),
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(func(ctx context.Context, q any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
			defer caught(i.FullMethod, &err)
			out, err = next(ctx, q)
			return out, fault.Sandbox.Encode(err)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer caught(i.FullMethod, &err)
			return fault.Sandbox.Encode(next(srv, s))
		}),
	)
}

// caught converts a panic to an error.
func caught(method string, err *error) {
	if p := recover(); p != nil {
		*err = status.Errorf(codes.Internal, "panic in %s: %v\n%s", method, p, debug.Stack())
	}
}

// Serve runs s on the single connection c and returns when c has ended and no
// call is in progress any more.
func Serve(s *grpc.Server, c net.Conn) {
	ServeOn(s, c)
	s.Stop()
}

// ServeOn is Serve for a server that also serves other connections. It returns
// when c has ended.
func ServeOn(s *grpc.Server, c net.Conn) {
	l := &one{conn: c, done: make(chan struct{}), closed: make(chan struct{})}
	_ = s.Serve(l) // ends with errEnded, or because s is being stopped
	if !l.given {
		_ = c.Close()
		return
	}
	<-l.closed // a server that stops gracefully closes its listeners first
}

// Client returns a gRPC client over c; the other side serves. Closing it closes
// c.
func Client(c net.Conn) (*grpc.ClientConn, error) {
	var once sync.Once
	return ClientOn("sandbox", func(context.Context, string) (net.Conn, error) {
		err := errEnded // gRPC would reconnect forever; this connection cannot be made again
		var out net.Conn
		once.Do(func() { out, err = c, nil })
		return out, err
	})
}

// ClientOn is Client with a dialer of the caller, which is called again when a
// connection has ended. name appears in errors.
func ClientOn(name string, dial func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	c, err := grpc.NewClient("passthrough:///"+name,
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the kind of connection identifies the peer
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithWriteBufferSize(bufferBytes), grpc.WithReadBufferSize(bufferBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0), // an idle client would close the connection, and with it the sandbox
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	return c, nil
}

var errEnded = errors.New("connection has ended")

// one is a listener that accepts a single connection. The next Accept blocks
// until that connection is closed, so that grpc.Server.Serve runs as long.
type one struct {
	conn   net.Conn
	given  bool
	once   sync.Once
	done   chan struct{} // ends Accept
	ending sync.Once
	closed chan struct{} // of the connection
}

func (l *one) Accept() (net.Conn, error) {
	if l.given {
		<-l.done
		return nil, errEnded
	}
	l.given = true
	return &closing{l.conn, l}, nil
}

func (l *one) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *one) Addr() net.Addr { return l.conn.LocalAddr() }

// closing tells the listener when gRPC closes the connection.
type closing struct {
	net.Conn
	l *one
}

func (c *closing) Close() error {
	c.l.ending.Do(func() { close(c.l.closed) })
	return errors.Join(c.l.Close(), c.Conn.Close())
}
