// Package relay gives each session of an agent or verifier its own address on
// the host: a socket whose connections are copied, byte by byte, to the sandbox
// while the session is open. Closing the relay revokes the access.
//
// It must not decode the bytes, and must not know what a session is for.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// Sandbox is the part of a sandbox's session that a relay needs.
type Sandbox interface {
	// Attach opens one more connection of the session.
	Attach(ctx context.Context) (net.Conn, error)
	// Detach closes all connections inside and returns when no call is being
	// carried out any more. Before that, the output that running commands have
	// written so far is still delivered.
	Detach(ctx context.Context) error
}

// Of makes a session of a sandbox usable for New.
func Of(box *host.Sandbox, who host.Session) Sandbox { return session{box, who} }

type session struct {
	box *host.Sandbox
	who host.Session
}

func (s session) Attach(ctx context.Context) (net.Conn, error) { return s.box.Attach(ctx, s.who) }
func (s session) Detach(ctx context.Context) error             { return s.box.Detach(ctx, s.who.ID) }

// Relay is the address of a session. It refuses calls until Open. Safe for
// concurrent use.
type Relay struct {
	path     string
	sandbox  Sandbox
	listener *net.UnixListener

	mu      sync.Mutex
	refusal *grpc.Server // while closed, after the first connection
	open    *opening     // nil: closed
	shut    bool
	conns   map[net.Conn]struct{}
	serving sync.WaitGroup // of the listener, and of refusals
}

// opening is the state from Open to Close.
type opening struct {
	forward   func(net.Conn)
	refuse    context.CancelFunc // ends what is still being attached
	end       context.CancelFunc
	attaching sync.WaitGroup
	copying   sync.WaitGroup
}

// New listens at path, at most 100 bytes and in a folder of ours (0700).
func New(path string, s Sandbox) (*Relay, error) {
	if len(path) > 100 {
		return nil, fmt.Errorf("relay %q: path of %d bytes, 100 are allowed", path, len(path))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("relay: %w", err), l.Close())
	}
	r := &Relay{path: path, sandbox: s, listener: l, conns: map[net.Conn]struct{}{}}
	r.serving.Go(r.accept)
	return r, nil
}

// newRefusal makes a server that answers every call of a closed session with an
// error, so that a client in any language learns the reason, and does not start
// its reconnect backoff.
func newRefusal() *grpc.Server { return grpc.NewServer(grpc.UnknownServiceHandler(refuse)) }

func refuse(any, grpc.ServerStream) error {
	return fault.Sandbox.Encode(fmt.Errorf("%w: the session is not open (between turns, or after its end)", fault.ErrRevoked))
}

// Address is passed to a plugin; it is valid as long as the session.
func (r *Relay) Address() string { return "unix:" + r.path }

// drainTime is how long refused clients have to confirm that they will
// reconnect.
const drainTime = time.Second

// Open lets connections through from now on. Opening twice is not an error.
func (r *Relay) Open(ctx context.Context) error {
	r.mu.Lock()
	switch {
	case r.shut:
		r.mu.Unlock()
		return fmt.Errorf("relay %s: it has been shut", r.path)
	case r.open != nil:
		r.mu.Unlock()
		return nil
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	coming, refuse := context.WithCancel(life)
	now := &opening{refuse: refuse, end: end}
	now.forward = func(c net.Conn) { r.forward(life, coming, now, c) }
	r.open = now
	refusal := r.refusal
	r.refusal = nil
	r.mu.Unlock()
	if refusal == nil {
		return nil
	}
	// Refused clients are told to reconnect; requests that they make meanwhile
	// use the new connection. Closing their connections would fail their next
	// call.
	late := time.AfterFunc(drainTime, refusal.Stop)
	defer late.Stop()
	refusal.GracefulStop()
	return nil
}

// Close revokes the access. When it returns, no byte passes any more in either
// direction, and no call of the session is being carried out inside. The relay
// refuses calls until the next Open. Close ends no command. The error is that
// of Detach; access from outside has ended in any case. Closing twice is not an
// error.
func (r *Relay) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.open == nil {
		r.mu.Unlock()
		return nil
	}
	was := r.open
	r.open = nil
	carried := r.conns
	r.conns = map[net.Conn]struct{}{}
	was.refuse()
	r.mu.Unlock()
	was.attaching.Wait()
	late := time.AfterFunc(lastWords, func() { was.close(carried) })
	err := r.sandbox.Detach(ctx)
	if err == nil {
		was.copying.Wait() // what was written is on its way
	}
	late.Stop()
	was.close(carried)
	was.copying.Wait()
	if err != nil {
		return fmt.Errorf("revoke access: %w", err)
	}
	return nil
}

// lastWords is how long the output that commands wrote before access was cut
// may take to reach their client.
const lastWords = 1500 * time.Millisecond

// close closes the connections.
func (o *opening) close(conns map[net.Conn]struct{}) {
	o.end()
	for c := range conns {
		_ = c.Close()
	}
}

// Shut closes the relay permanently and removes its address. Idempotent.
func (r *Relay) Shut(ctx context.Context) error {
	err := r.Close(ctx)
	r.mu.Lock()
	r.shut = true
	_ = r.listener.Close() // this also removes the socket
	r.closeConns()
	r.mu.Unlock()
	r.serving.Wait()
	return err
}

// closeConns closes the current connections. The caller holds the lock.
func (r *Relay) closeConns() {
	for c := range r.conns {
		_ = c.Close()
		delete(r.conns, c)
	}
}

func (r *Relay) accept() {
	for {
		c, err := r.listener.AcceptUnix()
		if err != nil {
			return
		}
		r.mu.Lock()
		switch {
		case r.shut:
			_ = c.Close()
		case r.open == nil:
			r.conns[c] = struct{}{}
			if r.refusal == nil {
				r.refusal = newRefusal()
			}
			refusal := r.refusal
			r.serving.Go(func() {
				stream.ServeOn(refusal, c)
				r.forget(c)
			})
		default:
			r.conns[c] = struct{}{}
			forward := r.open.forward
			r.open.attaching.Add(1)
			r.open.copying.Go(func() { forward(c) })
		}
		r.mu.Unlock()
	}
}

// forward attaches once per connection, not once per session, because gRPC
// clients reconnect, and a plugin may open two channels to one address.
func (r *Relay) forward(ctx, coming context.Context, o *opening, c net.Conn) {
	defer r.forget(c)
	inside, err := r.sandbox.Attach(coming)
	late := err == nil && coming.Err() != nil
	if late {
		_ = inside.Close()
	}
	o.attaching.Done()
	if err != nil || late {
		return
	}
	// Both ends are closed when access is revoked, including one that was
	// attached at that moment.
	stop := context.AfterFunc(ctx, func() { _, _ = c.Close(), inside.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() { pipe(c, inside) })
	pipe(inside, c)
	back.Wait()
}

func (r *Relay) forget(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
}

// pipe copies until one side ends and then closes both, because gRPC never
// half-closes.
func pipe(dst, src net.Conn) {
	_, _ = io.Copy(dst, src)
	_, _ = dst.Close(), src.Close()
}
