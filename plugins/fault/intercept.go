package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
)

const (
	// window is how far a sender may run ahead of a slow reader, in bytes. With
	// a fixed size gRPC sends no pings to measure the network after each
	// message. Those would double the system calls and wake up the other
	// process as often.
	window = 4 << 20

	// workers execute calls one after the other, on stacks that have already
	// grown. If all are busy, a call gets its own goroutine.
	workers = 2
)

// ServerOptions returns the options of every gRPC server of the contracts: it
// encodes errors, turns a panic into an error of its call, and limits the size
// of messages. panicked is called for each panic; it may be nil.
func ServerOptions(panicked func(ctx context.Context, method string, value any, stack []byte)) []grpc.ServerOption {
	if panicked == nil {
		panicked = func(context.Context, string, any, []byte) {}
	}
	guard := func(ctx context.Context, method string, err *error) {
		if p := recover(); p != nil { // a bug in one attempt must not end the others
			panicked(ctx, method, p, debug.Stack())
			*err = fmt.Errorf("%w: panic in %s: %v%s", ErrPanic, path.Base(method), p, panicAt())
		}
		*err = Plugin.Encode(*err)
	}
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), // the default is 4 MiB
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window), grpc.NumStreamWorkers(workers),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
			defer guard(ctx, i.FullMethod, &err)
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer guard(s.Context(), i.FullMethod, &err)
			return next(srv, s)
		}),
	}
}

// panicAt says where the panic that is being recovered happened: " (main.go:18)".
func panicAt() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicking := false
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if panicking && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf(" (%s:%d)", filepath.Base(f.File), f.Line)
		}
		panicking = panicking || f.Function == "runtime.gopanic"
	}
	return ""
}

// DialOptions returns the options of a connection to such a server.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(sizes...), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
	}
}

// Client returns conn with decoded errors and limited message sizes.
func Client(conn grpc.ClientConnInterface) grpc.ClientConnInterface { return decoding{conn} }

type decoding struct{ conn grpc.ClientConnInterface }

var sizes = []grpc.CallOption{grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)}

func (d decoding) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return Plugin.DecodeCall(ctx, d.conn.Invoke(ctx, method, args, reply, append(sizes[:2:2], opts...)...))
}

func (d decoding) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := d.conn.NewStream(ctx, desc, method, append(sizes[:2:2], opts...)...)
	if err != nil {
		return nil, Plugin.DecodeCall(ctx, err)
	}
	return decodingStream{s, ctx}, nil
}

type decodingStream struct {
	grpc.ClientStream

	caller context.Context // context of the call; the stream's own context ends with the stream
}

func (s decodingStream) SendMsg(m any) error { return s.decode(s.ClientStream.SendMsg(m)) }

func (s decodingStream) RecvMsg(m any) error { return s.decode(s.ClientStream.RecvMsg(m)) }

// decode leaves io.EOF unchanged, because gRPC uses it for the end of the
// stream.
func (s decodingStream) decode(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return Plugin.DecodeCall(s.caller, err)
}
