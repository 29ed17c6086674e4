package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// Sandbox is one connected sandbox. Safe for concurrent use. It renews its own
// lease. When it is closed or this process ends, sandboxd exits and everything
// inside is killed.
type Sandbox struct {
	// Hello is sandboxd's first answer.
	Hello Hello
	// PID is sandboxd's in our pid namespace; 0 if unknown.
	PID int

	control pb.SandboxControlClient
	conn    *grpc.ClientConn
	giver   stream.Giver
	lease   time.Duration

	lost    chan struct{}
	lostErr error // before lost is closed
	once    sync.Once
	end     context.CancelFunc
	workers sync.WaitGroup
}

// ErrTampered means that PID 1's limits or scheduling were changed. Untouched
// and Settle fail with it.
var ErrTampered = fault.ErrTampered

// labelTime is how long sandboxd may take for a label, which it sends right
// after connect.
const labelTime = 5 * time.Second

// mostRefusal is the longest refusal of sandboxd that is read, in bytes.
const mostRefusal = 1 << 10

// Connect waits for sandboxd's two connections, then closes the listener and
// removes the socket, so that nothing else can connect. No other program runs
// in the sandbox before that. pid is sandboxd's process id as the environment
// reported it, or 0; both connections must come from the same process. lease is
// how long the sandbox lives without contact to this process.
func Connect(ctx context.Context, f *Folder, pid int, lease time.Duration) (*Sandbox, error) {
	stop := context.AfterFunc(ctx, func() { _ = f.listener.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	control, peer, err := f.accept(stream.Control, pid)
	if err != nil {
		return nil, fmt.Errorf("wait for sandboxd: %w", errors.Join(err, context.Cause(ctx)))
	}
	supply, _, err := f.accept(stream.Supply, peer)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for sandboxd: %w", err), context.Cause(ctx), control.Close())
	}
	if err = f.listener.Close(); err != nil { // which removes the socket, too
		return nil, errors.Join(fmt.Errorf("close the sandbox's socket: %w", err), control.Close(), supply.Close())
	}
	return greet(ctx, control, stream.NewGiver(supply), peer, lease)
}

// ConnectStream is Connect for a backend that gives one byte stream to
// sandboxd. The Sandbox owns c.
func ConnectStream(ctx context.Context, c io.ReadWriteCloser, lease time.Duration) (*Sandbox, error) {
	giver, err := stream.NewMuxGiver(c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect sandbox: %w", err), c.Close())
	}
	control, err := giver.Give(stream.Label{Kind: stream.Control})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect sandbox: %w", err), giver.Close())
	}
	return greet(ctx, control, giver, 0, lease)
}

// greet says Hello on the control connection and begins to renew the lease.
func greet(ctx context.Context, control net.Conn, giver stream.Giver, pid int, lease time.Duration) (*Sandbox, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s := &Sandbox{PID: pid, giver: giver, lost: make(chan struct{}), end: end, lease: lease}
	conn, err := stream.Client(&watched{Conn: control, ended: func(err error) { s.lose(fmt.Errorf("%w: %w", fault.ErrGone, err)) }})
	if err != nil {
		end()
		return nil, errors.Join(err, control.Close(), giver.Close())
	}
	s.conn, s.control = conn, pb.NewSandboxControlClient(conn)
	r, err := s.control.Hello(ctx, &pb.HelloRequest{LeaseMs: lease.Milliseconds()})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("greet sandboxd: %w", fault.Sandbox.Decode(err)), s.Close())
	}
	s.Hello = Hello{BoundingCapabilities: r.GetBoundingCapabilities(), Findings: r.GetFindings()}
	s.workers.Go(func() { s.renew(life, s.lease) })
	return s, nil
}

// accept takes one connection of the given kind, from process pid (0: any).
func (f *Folder) accept(kind stream.Kind, pid int) (*net.UnixConn, int, error) {
	c, err := f.listener.AcceptUnix()
	if err != nil {
		return nil, 0, err
	}
	peer, err := peerPID(c)
	var l stream.Label
	if err == nil {
		_ = c.SetReadDeadline(time.Now().Add(labelTime))
		l, err = stream.ReadLabel(c)
	}
	switch {
	case err != nil:
	case l.Kind == stream.Refusal: // of whatever process
		why, _ := io.ReadAll(io.LimitReader(c, mostRefusal))
		err = fmt.Errorf("sandboxd does not serve there: %q", why)
	case pid != 0 && peer != pid:
		err = fmt.Errorf("peer is process %d, not sandboxd (%d)", peer, pid)
	case l.Kind != kind:
		err = fmt.Errorf("connection is of kind %q, not %q", byte(l.Kind), byte(kind))
	}
	_ = c.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, 0, errors.Join(err, c.Close())
	}
	return c, peer, nil
}

// peerPID returns the process that called connect, as seen from here; 0 means
// that it is not in a pid namespace below ours.
func peerPID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, fmt.Errorf("peer of a connection: %w", err)
	}
	return int(cred.Pid), nil
}

// watched reports the end of the connection at once, not only at the next call.
type watched struct {
	net.Conn
	ended func(error)
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.ended(err)
	}
	return n, err
}

// renew renews the lease three times per lease. A late call does no harm until
// the lease expires.
func (s *Sandbox) renew(ctx context.Context, lease time.Duration) {
	tick := time.NewTicker(max(lease/3, time.Millisecond))
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.lost:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		call, cancel := context.WithTimeout(ctx, lease)
		err := s.Untouched(call)
		cancel()
		switch {
		case err == nil, errors.Is(err, fault.ErrTampered): // Untouched reports this to its callers
			last = asked
		case time.Since(last) > lease:
			s.lose(err)
		}
	}
}

// Untouched renews the lease. It fails with ErrTampered when a process inside
// has changed the resource limits, the scheduling policy or the CPU affinity of
// PID 1. These changes cannot be undone.
func (s *Sandbox) Untouched(ctx context.Context) error {
	_, err := s.control.Renew(ctx, &pb.RenewRequest{LeaseMs: s.lease.Milliseconds()})
	return wrap("renew the lease", err)
}

func (s *Sandbox) lose(err error) {
	s.once.Do(func() {
		s.lostErr = err
		close(s.lost)
	})
}

// Lost is closed when the sandbox has ended or can no longer be reached, and by
// Close.
func (s *Sandbox) Lost() <-chan struct{} { return s.lost }

// Err returns why Lost is closed; nil before.
func (s *Sandbox) Err() error {
	select {
	case <-s.lost:
		return s.lostErr
	default:
		return nil
	}
}

// Close closes the connections. sandboxd then exits, and everything inside is
// killed. Idempotent.
func (s *Sandbox) Close() error {
	s.lose(fmt.Errorf("%w: closed by us", fault.ErrGone))
	s.end()
	err := errors.Join(s.conn.Close(), s.giver.Close())
	s.workers.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) && status.Code(err) != codes.Canceled { // a ClientConn closed twice
		return fmt.Errorf("close sandbox: %w", err)
	}
	return nil
}

// Attach opens one more connection of a session, which carries its commands,
// files and terminals as bytes (gRPC, for sandbox.New or a relay).
func (s *Sandbox) Attach(ctx context.Context, who Session) (net.Conn, error) {
	id := stream.NewID()
	if _, err := s.control.Attach(ctx, &pb.AttachRequest{
		Label: id[:], Session: who.ID, User: who.User, Dir: []byte(who.Dir), Env: wire.Bytes(who.Env), Grading: who.Grading, Guarded: who.Guarded,
	}); err != nil {
		return nil, fmt.Errorf("attach session %q: %w", who.ID, fault.Sandbox.Decode(err))
	}
	c, err := s.giver.Give(stream.Label{Kind: stream.Shell, ID: id})
	if err != nil {
		return nil, fmt.Errorf("attach session %q: %w", who.ID, err)
	}
	return c, nil
}

// Detach closes every connection of a session and returns when none of its
// calls is running. It kills nothing.
func (s *Sandbox) Detach(ctx context.Context, session string) error {
	_, err := s.control.Detach(ctx, &pb.DetachRequest{Session: session})
	return wrap(fmt.Sprintf("detach session %q", session), err)
}

// Shell is Attach with a client on it, for callers in this process.
func (s *Sandbox) Shell(ctx context.Context, who Session) (*sandbox.Client, error) {
	c, err := s.Attach(ctx, who)
	if err != nil {
		return nil, err
	}
	client, err := sandbox.New(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return client, nil
}

// wrap adds the operation to the error of a failed call and restores its
// sentinel.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", op, fault.Sandbox.Decode(err))
}

// decode is the answer to a call, or its error with the operation.
func decode[G any, P proto.Message](op string, m P, err error) (to G, _ error) {
	if err == nil {
		to, err = wire.Decode[G](m)
	}
	return to, wrap(op, err)
}

// decodeAll is decode for a list.
func decodeAll[G any, P proto.Message](op string, list []P, err error) (all []G, _ error) {
	if err == nil {
		all, err = wire.DecodeAll[G](list)
	}
	return all, wrap(op, err)
}
