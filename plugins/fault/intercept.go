package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"google.golang.org/grpc"
)

const (
	// window is how far a sender may run ahead of a slow reader, in bytes. That it
	// is fixed saves the pings by which gRPC would measure the network after each
	// message: twice the system calls, and as many wake-ups of the other process.
	window = 4 << 20

	// workers carry out calls one after the other, with stacks that have grown
	// already; a call that finds none of them idle gets a goroutine of its own.
	workers = 2
)

// ServerOptions is what every gRPC server of the contracts has: errors encoded,
// panics of a call turned into errors of that call, the size of messages
// bounded. panicked is told of each panic; it may be nil.
func ServerOptions(panicked func(method string, value any, stack []byte)) []grpc.ServerOption {
	if panicked == nil {
		panicked = func(string, any, []byte) {}
	}
	guard := func(method string, err *error) {
		if p := recover(); p != nil { // one attempt's bug must not end its neighbours
			panicked(method, p, debug.Stack())
			*err = fmt.Errorf("%w: panic in %s: %v", ErrPanic, method, p)
		}
		*err = Plugin.Encode(*err)
	}
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), // the default is 4 MiB
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window), grpc.NumStreamWorkers(workers),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
			defer guard(i.FullMethod, &err)
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer guard(i.FullMethod, &err)
			return next(srv, s)
		}),
	}
}

// DialOptions is what a connection to such a server is made with.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(sizes...), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
	}
}

// Client is conn with its errors decoded and the size of messages bounded.
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

	caller context.Context // of the call: the stream's own ends with the stream
}

func (s decodingStream) SendMsg(m any) error { return s.decode(s.ClientStream.SendMsg(m)) }

func (s decodingStream) RecvMsg(m any) error { return s.decode(s.ClientStream.RecvMsg(m)) }

// decode leaves io.EOF alone, by which gRPC means the end of the stream.
func (s decodingStream) decode(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return Plugin.DecodeCall(s.caller, err)
}
