package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/internal/wire"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// Terminal is a connection to a pseudo-terminal in the sandbox. Closing it
// (Close, or the end of the context it was opened with) leaves the terminal
// running. Read from one goroutine; Write and Resize from any.
type Terminal struct {
	c      *Client
	id     string
	st     grpc.BidiStreamingClient[pb.TerminalRequest, pb.TerminalReply]
	cancel context.CancelFunc

	mu     sync.Mutex // of sending, and of result
	result *Result

	offset int64  // of the next byte of Read
	rest   []byte // received and not read yet
}

// Terminal opens a new terminal and returns when its command runs. ctx bounds
// the connection, not the terminal. ErrExists means that the id is taken.
func (c *Client) Terminal(ctx context.Context, spec TerminalSpec) (*Terminal, error) {
	if len(spec.Argv) == 0 {
		return nil, fmt.Errorf("terminal %q: %w: no program given", spec.ID, ErrInvalid)
	}
	return c.hold(ctx, &pb.TerminalOpen{
		Id: spec.ID, Rows: uint32(max(spec.Rows, 0)), Columns: uint32(max(spec.Columns, 0)),
		Command: &pb.ExecStart{Argv: wire.Bytes(spec.Argv), Env: wire.Bytes(spec.Env), Dir: []byte(spec.Dir), User: spec.User},
	})
}

// JoinTerminal connects to an existing terminal. Its output starts at the given
// offset, or at the oldest byte that is left of the last 256 KiB; with a
// negative offset only new output is sent. A client that was connected before
// gets ErrGone. ErrNotFound means that no terminal has this id.
func (c *Client) JoinTerminal(ctx context.Context, id string, offset int64) (*Terminal, error) {
	return c.hold(ctx, &pb.TerminalOpen{Id: id, Offset: offset})
}

func (c *Client) hold(ctx context.Context, open *pb.TerminalOpen) (*Terminal, error) {
	op := fmt.Sprintf("terminal %q", open.GetId())
	ctx, cancel := context.WithCancel(ctx)
	t := &Terminal{c: c, id: open.GetId(), cancel: cancel}
	var err error
	if t.st, err = c.shell.Terminal(ctx); err == nil {
		if err = t.st.Send(&pb.TerminalRequest{Is: &pb.TerminalRequest_Open{Open: open}}); errors.Is(err, io.EOF) {
			err = nil // Recv returns the reason
		}
	}
	var m *pb.TerminalReply
	if err == nil {
		m, err = t.st.Recv()
	}
	if err != nil {
		cancel()
		return nil, c.failed(ctx, op, err)
	}
	if m.GetOpened() == nil {
		cancel()
		return nil, fmt.Errorf("%s: sandboxd answered %T first", op, m.GetIs())
	}
	t.offset = m.GetOpened().GetOffset()
	return t, nil
}

// ID is the id of the terminal.
func (t *Terminal) ID() string { return t.id }

// Offset is the offset of the next byte that Read returns, counted from the
// beginning of the terminal. Not to be called during a Read.
func (t *Terminal) Offset() int64 { return t.offset }

// Read reads raw output from the sandbox, including escape sequences. io.EOF
// means that the terminal's first process has ended; Result says how.
func (t *Terminal) Read(b []byte) (int, error) {
	for len(t.rest) == 0 {
		m, err := t.st.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, t.c.failed(t.st.Context(), fmt.Sprintf("terminal %q", t.id), err)
		}
		switch is := m.GetIs().(type) {
		case *pb.TerminalReply_Output_:
			t.offset, t.rest = is.Output.GetOffset(), is.Output.GetData()
		case *pb.TerminalReply_Exit:
			r := resultOf(is.Exit)
			t.mu.Lock()
			t.result = &r
			t.mu.Unlock()
			return 0, io.EOF
		}
	}
	n := copy(b, t.rest)
	t.rest, t.offset = t.rest[n:], t.offset+int64(n)
	return n, nil
}

// Result is how the terminal's first process ended; false before Read has
// returned io.EOF.
func (t *Terminal) Result() (Result, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.result == nil {
		return Result{}, false
	}
	return *t.result, true
}

// Write sends b as input.
func (t *Terminal) Write(b []byte) (int, error) {
	done := 0
	for part := range slices.Chunk(b, stream.Chunk/4) {
		if err := t.send(&pb.TerminalRequest{Is: &pb.TerminalRequest_Input{Input: part}}); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// Resize changes the size of the screen and tells the foreground job.
func (t *Terminal) Resize(rows, columns int) error {
	if rows < 1 || columns < 1 || rows > 0xffff || columns > 0xffff {
		return fmt.Errorf("terminal %q: %w: size %d × %d, want 1 to 65535 each", t.id, ErrInvalid, rows, columns)
	}
	return t.send(&pb.TerminalRequest{Is: &pb.TerminalRequest_Resize{Resize: &pb.TerminalRequest_Size{
		Rows: uint32(rows), Columns: uint32(columns),
	}}})
}

func (t *Terminal) send(m *pb.TerminalRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.st.Send(m); err != nil {
		if errors.Is(err, io.EOF) { // Recv has the real error, and Read returns it
			return fmt.Errorf("terminal %q: %w: it has ended", t.id, ErrGone)
		}
		return t.c.failed(t.st.Context(), fmt.Sprintf("terminal %q", t.id), err)
	}
	return nil
}

// Close disconnects from the terminal, which keeps running. Kill with its ID
// ends it.
func (t *Terminal) Close() error {
	t.cancel()
	return nil
}
