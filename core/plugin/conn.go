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
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/fault"
)

// conn is a connection to the process of a binary that runs at the time of each
// call. It starts the process if there is none, and its errors explain what
// happened to the plugin.
type conn struct {
	binary *binary
	who    string   // for messages: `agent "nop"`
	only   *process // the only process that may answer; nil: the current one
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
	return c.explain(ctx, p, method, p.conn.Invoke(p.attempts.serve(ctx), method, args, reply, opts...))
}

func (c conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p, err := c.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.who, err)
	}
	s, err := p.conn.NewStream(p.attempts.serve(ctx), desc, method, opts...)
	if err != nil {
		return nil, c.explain(ctx, p, method, err)
	}
	return stream{ClientStream: s, caller: ctx, conn: c, proc: p, method: method}, nil
}

type stream struct {
	grpc.ClientStream

	caller context.Context // context of the call: the context of the stream ends with the stream
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

// explain turns an error of gRPC into an explanation of what happened. It keeps
// io.EOF, which means the end of a stream.
func (c conn) explain(ctx context.Context, p *process, method string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	op := c.who + ": " + strings.ToLower(method[strings.LastIndexByte(method, '/')+1:])
	code := status.Code(err)
	// Closing the connection of an ended process cancels its remaining calls, a
	// moment before the process counts as ended.
	closed := code == codes.Canceled && ctx.Err() == nil && (p.ended() || p.conn.GetState() == connectivity.Shutdown)
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
		if p.conn.GetState() == connectivity.Ready {
			return fmt.Errorf("%s: the plugin answered with the code UNAVAILABLE, which a plugin must not use: it means that the process of the plugin is gone, "+
				"but it is running. What it said: %s", op, status.Convert(err).Message())
		}
		p.kill() // it no longer answers: start a new one next time
		<-p.done
	}
	if p.stopping() {
		return fmt.Errorf("%s: %w", op, ErrStopped)
	}
	return fmt.Errorf("%s: %w: %s", op, ErrPluginGone, p.howItEnded())
}

// panicked is the error of a call that panicked. For the caller the plugin is
// gone, although its process still runs.
type panicked struct{ error }

// Is makes the error match ErrPluginGone.
func (panicked) Is(target error) bool { return target == ErrPluginGone }

// Unwrap returns the error of the plugin.
func (p panicked) Unwrap() error { return p.error }
