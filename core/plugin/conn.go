package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/fault"
)

// conn is a connection to whichever process of a binary runs when a call is
// made. It starts the process if there is none, and says in its errors what
// happened to the plugin.
type conn struct {
	binary *binary
	who    string   // for messages: `agent "nop"`
	only   *process // the one process that answers; nil: whichever runs
}

func (c conn) acquire(ctx context.Context) (*process, error) {
	if c.only != nil {
		return c.only, nil
	}
	return c.binary.acquire(ctx)
}

var _ grpc.ClientConnInterface = conn{}

func (c conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	p, err := c.acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.who, err)
	}
	return c.explain(ctx, p, method, p.conn.Invoke(ctx, method, args, reply, opts...))
}

func (c conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p, err := c.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.who, err)
	}
	s, err := p.conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, c.explain(ctx, p, method, err)
	}
	return stream{ClientStream: s, caller: ctx, conn: c, proc: p, method: method}, nil
}

type stream struct {
	grpc.ClientStream

	caller context.Context // of the call: the stream's own ends with the stream
	conn   conn
	proc   *process
	method string
}

func (s stream) SendMsg(m any) error {
	return s.conn.explain(s.caller, s.proc, s.method, s.ClientStream.SendMsg(m))
}

func (s stream) RecvMsg(m any) error {
	return s.conn.explain(s.caller, s.proc, s.method, s.ClientStream.RecvMsg(m))
}

// endTimeout is how long to wait for the end of a process after its connection
// broke: the call fails a moment before the end is seen.
const endTimeout = time.Second

// explain turns what gRPC says into what happened. io.EOF stays: by it gRPC
// means the end of a stream.
func (c conn) explain(ctx context.Context, p *process, method string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	op := c.who + ": " + strings.ToLower(method[strings.LastIndexByte(method, '/')+1:])
	code := status.Code(err)
	// Closing the connection of a process that ended cancels what is left of its
	// calls.
	closed := code == codes.Canceled && ctx.Err() == nil && p.ended()
	if code != codes.Unavailable && !closed {
		err = fault.Plugin.DecodeCall(ctx, err)
		if errors.Is(err, agent.ErrNoSession) {
			return fmt.Errorf("%s: %w: %w", op, ErrPluginGone, err)
		}
		if errors.Is(err, fault.ErrPanic) {
			return panicked{fmt.Errorf("%s: %w", op, err)}
		}
		return err
	}
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		p.kill() // it does not answer any more: better a new one
		<-p.done
	}
	if p.stopping() {
		return fmt.Errorf("%s: %w", op, ErrStopped)
	}
	return fmt.Errorf("%s: %w: %s", op, ErrPluginGone, p.howItEnded())
}

// panicked is the error of a call that ended with a panic. To the caller the
// plugin is gone, although its process lives on.
type panicked struct{ error }

// Is makes it an ErrPluginGone.
func (panicked) Is(target error) bool { return target == ErrPluginGone }

// Unwrap is what the plugin said.
func (p panicked) Unwrap() error { return p.error }
