package sandboxd

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
)

// own is the core's session on the control connection, made by an Attach
// without a label. It is empty until then.
type own struct {
	pb.UnimplementedSandboxShellServer
	atomic.Pointer[shell]
}

func (o *own) session() (*shell, error) {
	if h := o.Load(); h != nil {
		return h, nil
	}
	return nil, fmt.Errorf("%w: this connection has no session: Attach comes first", fault.ErrInvalid)
}

// unary and streamed pass a call on to the session.
func unary[Q, R any](ctx context.Context, o *own, q Q, do func(*shell, context.Context, Q) (R, error)) (r R, err error) {
	h, err := o.session()
	if err != nil {
		return r, err
	}
	return do(h, ctx, q)
}

func streamed[S any](o *own, st S, do func(*shell, S) error) error {
	h, err := o.session()
	if err != nil {
		return err
	}
	return do(h, st)
}

func (o *own) Exec(st pb.SandboxShell_ExecServer) error { return streamed(o, st, (*shell).Exec) }

func (o *own) Terminal(st pb.SandboxShell_TerminalServer) error {
	return streamed(o, st, (*shell).Terminal)
}

func (o *own) Upload(st grpc.ClientStreamingServer[pb.UploadRequest, pb.UploadReply]) error {
	return streamed(o, st, (*shell).Upload)
}

func (o *own) Download(q *pb.DownloadRequest, st grpc.ServerStreamingServer[pb.DownloadReply]) error {
	return streamed(o, st, func(h *shell, st grpc.ServerStreamingServer[pb.DownloadReply]) error { return h.Download(q, st) })
}

func (o *own) Signal(ctx context.Context, q *pb.SignalRequest) (*pb.SignalReply, error) {
	return unary(ctx, o, q, (*shell).Signal)
}

func (o *own) Stat(ctx context.Context, q *pb.StatRequest) (*pb.StatReply, error) {
	return unary(ctx, o, q, (*shell).Stat)
}

func (o *own) Read(ctx context.Context, q *pb.ReadRequest) (*pb.ReadReply, error) {
	return unary(ctx, o, q, (*shell).Read)
}
