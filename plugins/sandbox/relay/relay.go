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
	refusal *refusal // while closed, after the first connection
	open    *opening // nil: closed
	last    *opening // the one before; nil: there was none
	shut    bool
	conns   map[net.Conn]struct{}
	serving sync.WaitGroup // of the listener, and of refusals
}

// opening is the state from Open to Close.
type opening struct {
	forward   func(*net.UnixConn)
	refuse    context.CancelFunc // ends what is still being attached
	end       context.CancelFunc
	attaching sync.WaitGroup
	copying   sync.WaitGroup
	leaving   sync.WaitGroup // of clients, which close their ends last
}

// refusal is a server that answers every call of a closed session with an error,
// so that a client in any language learns the reason, and does not start its
// reconnect backoff.
type refusal struct {
	*grpc.Server

	coming sync.WaitGroup // of connections that the server does not know yet
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

func newRefusal() *refusal {
	return &refusal{Server: grpc.NewServer(grpc.UnknownServiceHandler(refuse), grpc.ConnectionTimeout(drainTime))}
}

// serve returns when c has ended.
func (r *refusal) serve(c net.Conn, known func()) {
	defer known()
	stream.ServeOn(r.Server, taken{c, known})
}

// taken calls known when the server has taken a connection: its first act is to
// set a deadline for the greeting. A server that stops gracefully tells those
// clients to reconnect, and breaks off all others.
type taken struct {
	net.Conn

	known func()
}

func (t taken) SetDeadline(at time.Time) error {
	t.known()
	return t.Conn.SetDeadline(at)
}

func refuse(any, grpc.ServerStream) error {
	return fault.Sandbox.Encode(fmt.Errorf("%w: the session is not open (between turns, or after its end)", fault.ErrRevoked))
}

// Address is passed to a plugin; it is valid as long as the session.
func (r *Relay) Address() string { return "unix:" + r.path }

// drainTime is how long clients have to leave their connections of the last turn,
// or those on which they were refused. Usually they need less than a millisecond.
const drainTime = 5 * time.Second

// Open lets connections through from now on. It returns when calls reach the
// sandbox: clients have left the connections that they had before, so that none
// makes its next call on one of them. Opening twice is not an error.
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
	now.forward = func(c *net.UnixConn) { r.forward(life, coming, now, c) }
	last, refusal := r.last, r.refusal
	r.open, r.last, r.refusal = now, now, nil
	r.mu.Unlock()
	if last != nil {
		last.leaving.Wait()
	}
	if refusal == nil {
		return nil
	}
	// Refused clients are told to reconnect; requests that they make meanwhile
	// use the new connection. Closing their connections would fail their next
	// call.
	refusal.coming.Wait()
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
	was.refuse()
	r.mu.Unlock()
	was.attaching.Wait()
	late := time.AfterFunc(lastWords, was.end)
	err := r.sandbox.Detach(ctx)
	if err == nil {
		was.copying.Wait() // what was written is on its way
	}
	late.Stop()
	was.end()
	was.copying.Wait()
	if err != nil {
		return fmt.Errorf("revoke access: %w", err)
	}
	return nil
}

// lastWords is how long the output that commands wrote before access was cut
// may take to reach their client.
const lastWords = 1500 * time.Millisecond

// Shut closes the relay permanently and removes its address. Idempotent.
func (r *Relay) Shut(ctx context.Context) error {
	err := r.Close(ctx)
	r.mu.Lock()
	r.shut = true
	_ = r.listener.Close() // this also removes the socket
	r.closeConns()
	last := r.last
	r.mu.Unlock()
	r.serving.Wait()
	if last != nil {
		last.leaving.Wait()
	}
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
		r.take(c)
	}
}

// take lets a new connection through, or refuses its calls.
func (r *Relay) take(c *net.UnixConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		_ = c.Close()
		return
	}
	r.conns[c] = struct{}{}
	if now := r.open; now != nil {
		now.attaching.Add(1)
		now.copying.Add(1)
		now.leaving.Go(func() { now.forward(c) })
		return
	}
	if r.refusal == nil {
		r.refusal = newRefusal()
	}
	refusal := r.refusal
	refusal.coming.Add(1)
	r.serving.Go(func() {
		refusal.serve(c, sync.OnceFunc(refusal.coming.Done))
		r.forget(c)
	})
}

// forward attaches once per connection, not once per session, because gRPC
// clients reconnect, and a plugin may open two channels to one address.
func (r *Relay) forward(ctx, coming context.Context, o *opening, c *net.UnixConn) {
	inside, err := r.sandbox.Attach(coming)
	cut := coming.Err() != nil
	if err == nil && cut {
		_ = inside.Close()
	}
	o.attaching.Done()
	if cut || err != nil {
		o.copying.Done()
	}
	switch {
	case cut: // nothing was read from it, so its calls can be refused like those of later ones
		r.take(c)
	case err != nil:
		r.forget(c)
	default:
		Carry(ctx, c, inside)
		o.copying.Done()
		// The client reads the end and closes. Until then its calls fail. If the
		// relay did not wait, that could be the first call of the next turn.
		_ = c.SetReadDeadline(time.Now().Add(drainTime))
		_, _ = io.Copy(io.Discard, c)
		r.forget(c)
	}
}

// Carry copies between a client and the sandbox until one of them ends or ctx
// does. Then it closes the connection into the sandbox, because gRPC never
// half-closes, and sends the client no more.
func Carry(ctx context.Context, c *net.UnixConn, inside net.Conn) {
	part := sync.OnceFunc(func() {
		_, _ = inside.Close(), c.CloseWrite()
		_ = c.SetDeadline(time.Unix(1, 0)) // ends the copies
	})
	stop := context.AfterFunc(ctx, part)
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, inside)
		part()
	})
	_, _ = io.Copy(inside, c)
	part()
	back.Wait()
}

func (r *Relay) forget(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
}
