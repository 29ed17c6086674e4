package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
)

// Door is the address of a surface for one session. It refuses calls until Open.
// Safe for concurrent use.
type Door struct {
	path   string
	of     *Surface
	server *grpc.Server
	ended  chan struct{}

	mu    sync.Mutex
	now   *opening // nil: closed
	calls sync.WaitGroup
}

// opening is the state from Open to Close.
type opening struct {
	ctx context.Context //nolint:containedctx // it ends the calls of the session
	end context.CancelCauseFunc
}

// NewDoor listens at path, at most 100 bytes and in a folder of ours (0700).
func (s *Surface) NewDoor(path string) (*Door, error) {
	if len(path) > 100 {
		return nil, fmt.Errorf("surface %q: path of %d bytes, 100 are allowed", path, len(path))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("surface: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("surface: %w", err), l.Close())
	}
	d := &Door{path: path, of: s, ended: make(chan struct{})}
	d.server = grpc.NewServer(grpc.MaxRecvMsgSize(fault.MaxMessage), grpc.MaxSendMsgSize(fault.MaxMessage), grpc.UnaryInterceptor(d.guard))
	environmentpb.RegisterSurfaceServer(d.server, environment.NewSessionServer(guarded{d}))
	go func() {
		defer close(d.ended)
		_ = d.server.Serve(l) // it returns after Stop
	}()
	return d, nil
}

// guard encodes errors, and turns a panic into the error of its call.
func (*Door) guard(ctx context.Context, req any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic in %s: %v\n%s", fault.ErrPanic, i.FullMethod, p, debug.Stack())
		}
		err = fault.Sandbox.Encode(err)
	}()
	return next(ctx, req)
}

// Address is passed to an agent; it is valid as long as the session.
func (d *Door) Address() string { return "unix:" + d.path }

// Session is what the door leads to, for servers of other protocols. Calls fail
// with sandbox.ErrRevoked while the door is closed.
func (d *Door) Session() environment.Session { return guarded{d} }

// Open lets calls through from now on. Opening twice is not an error.
func (d *Door) Open(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		o := &opening{}
		o.ctx, o.end = context.WithCancelCause(context.WithoutCancel(ctx))
		d.now = o
	}
}

// errCut is the cause with which Close ends calls.
var errCut = fmt.Errorf("%w: the session is not open (between turns, or after its end)", fault.ErrRevoked)

// Close revokes the access. A call that is under way is cut. When Close returns
// without an error, no call is in progress. Closing twice is not an error.
func (d *Door) Close(ctx context.Context) error {
	d.mu.Lock()
	was := d.now
	d.now = nil
	d.mu.Unlock()
	if was == nil {
		return nil
	}
	was.end(errCut)
	idle := make(chan struct{})
	go func() {
		d.calls.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a call of the surface continues after it was cancelled: %w", context.Cause(ctx))
	}
}

// Shut closes the door permanently and removes its address. Idempotent.
func (d *Door) Shut(ctx context.Context) error {
	err := d.Close(ctx)
	d.server.Stop() // this also removes the socket
	<-d.ended
	return err
}

// enter lets a call in. Its context ends with the call's and with Close.
func (d *Door) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		return nil, nil, errCut
	}
	o := d.now
	d.calls.Add(1)
	// Close must end it at once, or the next call in the queue would still begin.
	inner, cancel := context.WithCancelCause(o.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return inner, func() {
		stop()
		cancel(nil)
		d.calls.Done()
	}, nil
}

// guarded is the session of a door.
type guarded struct{ d *Door }

func (g guarded) Actions(ctx context.Context) (environment.Offer, error) {
	ctx, leave, err := g.d.enter(ctx)
	if err != nil {
		return environment.Offer{}, err
	}
	defer leave()
	return g.d.of.actions(ctx)
}

func (g guarded) Observe(ctx context.Context, want []string) (environment.Observation, error) {
	ctx, leave, err := g.d.enter(ctx)
	if err != nil {
		return environment.Observation{}, err
	}
	defer leave()
	return g.d.of.observe(ctx, want)
}

func (g guarded) Act(ctx context.Context, c environment.Call, want []string) (environment.Step, error) {
	ctx, leave, err := g.d.enter(ctx)
	if err != nil {
		return environment.Step{}, err
	}
	defer leave()
	return g.d.of.act(ctx, c, want)
}

// Forward serves connections to a socket at path, at most 100 bytes, by those
// that dial makes. Close of the result ends it; the end of ctx does not.
func Forward(ctx context.Context, path string, dial func(ctx context.Context) (net.Conn, error)) (io.Closer, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	f := &forwarding{Listener: l}
	f.ctx, f.end = context.WithCancel(context.WithoutCancel(ctx))
	f.all.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			f.all.Go(func() { f.carry(c, dial) })
		}
	})
	return f, nil
}

type forwarding struct {
	net.Listener

	ctx context.Context //nolint:containedctx // it ends the connections
	end context.CancelFunc
	all sync.WaitGroup
}

func (f *forwarding) carry(c *net.UnixConn, dial func(ctx context.Context) (net.Conn, error)) {
	defer c.Close()
	inside, err := dial(f.ctx)
	if err != nil {
		return
	}
	defer inside.Close()
	relay.Carry(f.ctx, c, inside)
}

func (f *forwarding) Close() error {
	err := f.Listener.Close()
	f.end()
	f.all.Wait()
	return err
}
