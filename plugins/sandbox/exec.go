package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// killTime is how long a cancelled call waits to see its command dead.
const killTime = 5 * time.Second

// Exec runs c and returns when its first process has ended; its background
// processes keep running. A command that ran is a Result, whatever its exit
// code. An error means that it did not start (ErrNoProgram, ErrDenied,
// ErrNoRoom, ErrNotFound for its user or folder, ErrExists, ErrFrozen,
// ErrRevoked), that ctx ended, or that the connection broke. When ctx ends, the
// command and its descendants are dead before Exec returns, unless the command
// has an ID.
func (c *Client) Exec(ctx context.Context, cmd Command) (Result, error) {
	if len(cmd.Argv) == 0 {
		return Result{}, fmt.Errorf("exec: %w: no program given", ErrInvalid)
	}
	op := fmt.Sprintf("exec %q", cmd.Argv[0])
	start := &pb.ExecStart{
		Argv: wire.Bytes(cmd.Argv), Env: wire.Bytes(cmd.Env), Dir: []byte(cmd.Dir), User: cmd.User,
		TimeoutMs: milliseconds(cmd.Timeout), Stdin: cmd.Stdin != nil, Id: cmd.ID, Keep: cmd.ID != "", Sweep: cmd.Sweep,
		DiscardStdout: cmd.Stdout == nil, DiscardStderr: cmd.Stderr == nil, Unwritten: cmd.Unwritten,
	}
	for _, r := range cmd.Read {
		start.Read = append(start.Read, &pb.ReadRequest{Path: []byte(r.Path), MaxBytes: r.Limit})
	}
	if start.Id == "" {
		start.Id = newID()
	}
	r := running{c: c, op: op, id: start.GetId(), kept: cmd.ID != "", stdin: cmd.Stdin, stdout: cmd.Stdout, stderr: cmd.Stderr}
	return r.run(ctx, &pb.ExecRequest{Is: &pb.ExecRequest_Start{Start: start}})
}

// Join follows a command that was started with an ID. It copies the output that
// the caller does not have yet and returns when the command has ended. A client
// that already follows the command gets ErrGone. When ctx ends, the command
// keeps running.
func (c *Client) Join(ctx context.Context, j Joining) (Result, error) {
	r := running{
		c: c, op: fmt.Sprintf("join %q", j.ID), id: j.ID, kept: true,
		stdin: j.Stdin, stdout: j.Stdout, stderr: j.Stderr, joined: j.Joined,
	}
	return r.run(ctx, &pb.ExecRequest{Is: &pb.ExecRequest_Join{Join: &pb.ExecJoin{
		Id: j.ID, StdoutOffset: j.StdoutOffset, StderrOffset: j.StderrOffset,
	}}})
}

// running is one call of Exec or Join.
type running struct {
	c              *Client
	op, id         string
	kept           bool
	stdin          io.Reader
	stdout, stderr io.Writer
	joined         func(stdout, stderr int64)
}

func (r *running) run(ctx context.Context, first *pb.ExecRequest) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("%s: %w", r.op, context.Cause(ctx))
	}
	// The call lasts a little longer than ctx, to see that the command is dead.
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { r.cancel(call, cancel) })
	defer stop()
	st, err := r.c.shell.Exec(call)
	if err != nil {
		return Result{}, r.failed(ctx, err)
	}
	if err = st.Send(first); err != nil && !errors.Is(err, io.EOF) { // on EOF, Recv returns the reason
		return Result{}, r.failed(ctx, err)
	}
	if r.stdin != nil {
		go feed(st, r.stdin)
	}
	exit, err := r.receive(st)
	if err != nil {
		return Result{}, r.failed(ctx, err)
	}
	ended := !stop()
	// Read the end of the stream, which arrives with the status. Without this,
	// gRPC would send a needless cancel.
	_, _ = st.Recv()
	if ended && !r.kept { // ctx ended first and may have ended the command
		return resultOf(exit), fmt.Errorf("%s: %w", r.op, context.Cause(ctx))
	}
	return resultOf(exit), nil
}

// cancel kills the command, then ends the call. It sends the kill as a separate
// call, because within the stream it would wait behind unread standard input.
func (r *running) cancel(call context.Context, end context.CancelFunc) {
	if !r.kept {
		limit, done := context.WithTimeout(call, killTime)
		defer done()
		if _, err := r.c.shell.Signal(limit, &pb.SignalRequest{Id: r.id, Tree: true}); err == nil {
			select { // the rest of the output and the exit status are on their way
			case <-limit.Done():
			case <-call.Done():
			}
		}
	}
	end() // this also kills the command if its id was not known yet
}

func (r *running) failed(ctx context.Context, err error) error {
	if w, ok := errors.AsType[*writeError](err); ok {
		return fmt.Errorf("%s: %w", r.op, w.err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", r.op, context.Cause(ctx))
	}
	return r.c.failed(ctx, r.op, err)
}

// writeError is an error of the caller's writer.
type writeError struct{ err error }

func (w *writeError) Error() string { return w.err.Error() }

// receive copies output until the exit status comes.
func (r *running) receive(st grpc.BidiStreamingClient[pb.ExecRequest, pb.ExecReply]) (*pb.Exit, error) {
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			err = errors.New("sandboxd answered without an exit status")
		}
		if err != nil {
			return nil, err
		}
		switch is := m.GetIs().(type) {
		case *pb.ExecReply_Stdout:
			err = write(r.stdout, is.Stdout)
		case *pb.ExecReply_Stderr:
			err = write(r.stderr, is.Stderr)
		case *pb.ExecReply_Joined_:
		case *pb.ExecReply_Exit:
			return is.Exit, nil
		}
		if j := m.GetJoined(); j != nil && r.joined != nil {
			r.joined(j.GetStdoutOffset(), j.GetStderrOffset())
		}
		if err != nil {
			return nil, &writeError{err} // and the deferred cancel ends the command
		}
	}
}

func write(w io.Writer, b []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(b)
	return err
}

// feed sends standard input until its end, or until the call has ended.
func feed(st grpc.BidiStreamingClient[pb.ExecRequest, pb.ExecReply], in io.Reader) {
	b := make([]byte, stream.Chunk/4)
	for {
		n, err := in.Read(b)
		if n > 0 && st.Send(&pb.ExecRequest{Is: &pb.ExecRequest_Stdin{Stdin: b[:n]}}) != nil {
			return
		}
		if err != nil {
			_ = st.Send(&pb.ExecRequest{Is: &pb.ExecRequest_CloseStdin{CloseStdin: true}})
			return
		}
	}
}

func resultOf(e *pb.Exit) Result {
	return Result{
		ExitCode: int(e.GetCode()), Signal: syscall.Signal(e.GetSignal()), TimedOut: e.GetTimedOut(), Killed: e.GetKilled(),
		Swept: swept(e.GetSwept()), Read: answers(e.GetRead()),
	}
}

func answers(in []*pb.Exit_Answer) (out []Answer) {
	for _, a := range in {
		out = append(out, Answer{Data: a.GetData(), Err: fault.Sandbox.Join(a.GetReason(), a.GetError())})
	}
	return out
}

// milliseconds rounds up, so that a timeout of 100 µs does not become 0, which
// means none.
func milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// swept returns the command lines of the processes, or their names without one.
func swept(ps []*pb.Process) (lines []string) {
	for _, p := range ps {
		line := strings.ReplaceAll(strings.TrimRight(string(p.GetCommandLine()), "\x00"), "\x00", " ")
		lines = append(lines, cmp.Or(line, string(p.GetComm())))
	}
	return lines
}
