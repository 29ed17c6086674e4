package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pipe"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/ring"
)

// shell serves one connection of a session.
type shell struct {
	pb.UnimplementedSandboxShellServer
	d        *daemon
	conn     *connection
	defaults defaults
}

// keptOutput is how many bytes of each output of a kept command are stored for
// a join.
const keptOutput = 256 << 10

// Exec runs one command, or joins one. It ends when the command's first process
// ends. If the command left a server in the background, that server keeps its
// output pipe and its output is discarded; Exec does not wait for it.
func (h *shell) Exec(st pb.SandboxShell_ExecServer) error {
	first, err := st.Recv()
	if err == nil {
		err = h.conn.open()
	}
	if err != nil {
		return err
	}
	switch is := first.GetIs().(type) {
	case *pb.ExecRequest_Start:
		if grades := is.Start.GetSweep() || len(is.Start.GetRead()) > 0; grades && (is.Start.GetKeep() || !h.defaults.grading) {
			return fmt.Errorf("%w: sweep and read are for a session that grades, and not for a command that is kept", fault.ErrDenied)
		}
		if is.Start.GetKeep() {
			return h.execKept(st, is.Start)
		}
		return h.exec(st, is.Start)
	case *pb.ExecRequest_Join:
		c, err := h.conn.s.find(is.Join.GetId())
		if err != nil {
			return err
		}
		if <-c.started; c.process == nil || !c.kept() || c.terminal != nil {
			return fmt.Errorf("%w: no kept command %q", fault.ErrNotFound, c.id)
		}
		return h.follow(st, c, is.Join.GetStdoutOffset(), is.Join.GetStderrOffset(), true)
	}
	return fmt.Errorf("%w: the first message is neither start nor join", fault.ErrInvalid)
}

// exec runs a command that ends with its call, unless the connection breaks.
func (h *shell) exec(st pb.SandboxShell_ExecServer, spec *pb.ExecStart) error {
	c := &command{id: spec.GetId(), session: h.conn.s, started: make(chan struct{})}
	if err := h.readable(spec); err != nil {
		return err
	}
	known, err := h.before(spec)
	if err != nil {
		return err
	}
	fds, err := h.launch(c, spec)
	if err != nil {
		return err
	}
	d, ctx, p := h.d, st.Context(), c.process
	cancelled, end := h.conn.begin(ctx)
	defer end()
	stop := context.AfterFunc(ctx, func() {
		if cancelled() {
			d.kill(c)
		}
	})
	defer stop()

	to := &sender{st: st}
	var outputs []*pipe.Output
	var readers sync.WaitGroup
	for i, wrap := range []func([]byte) *pb.ExecReply{stdout, stderr} {
		if f := fds.Take(i+1, "output"); f != nil {
			out := &pipe.Output{File: f}
			outputs = append(outputs, out)
			readers.Go(func() { out.Copy(func(b []byte) error { return to.send(wrap(b)) }) })
		}
	}
	c.stdin = &pipe.Input{}
	c.stdin.Set(fds.Take(0, "stdin"))
	if spec.GetStdin() {
		go c.feed(st, h.conn)
	}
	said := func() {
		for _, out := range outputs {
			out.End()
		}
		readers.Wait()
	}
	finish := func() {
		c.stdin.Close()
		d.ended(c)
		h.conn.s.remove(c)
	}
	select {
	case <-p.Ended:
		said()
		finish()
		exit, err := h.swept(c, spec, known)
		if err != nil {
			return err
		}
		return st.Send(&pb.ExecReply{Is: &pb.ExecReply_Exit{Exit: exit}})
	case <-h.conn.leave: // output from now on is discarded
		said()
		go func() {
			<-p.Ended
			finish()
		}()
		return errCut
	case <-ctx.Done():
		to.end()
		go func() {
			<-p.Ended
			said()
			finish()
		}()
		return ctx.Err()
	}
}

// swept returns how a command ended, with the processes that it left running
// and the contents of the files that it was to write. It kills those processes
// unless known is nil.
func (h *shell) swept(c *command, spec *pb.ExecStart, known map[int64]uint64) (exit *pb.Exit, err error) {
	exit = c.exit()
	if known != nil {
		if exit.Swept, err = h.d.sweep(known); err != nil {
			return nil, err
		}
	}
	for _, q := range spec.GetRead() {
		r, wrong := readRegular(q)
		reason, text := fault.Sandbox.Parts(wrong)
		exit.Read = append(exit.Read, &pb.Exit_Answer{Data: r.GetData(), Reason: reason, Error: text})
	}
	return exit, nil
}

// readable checks that the files that spec wants to read fit into an answer
// and, if spec says that they must be unwritten, that they are.
func (h *shell) readable(spec *pb.ExecStart) error {
	left := int64(maxRead)
	for _, q := range spec.GetRead() {
		if left -= q.GetMaxBytes(); q.GetMaxBytes() < 1 || left < 0 {
			return fmt.Errorf("%w: files to read have limits of 1 byte to %d bytes together", fault.ErrInvalid, maxRead)
		}
		if !spec.GetUnwritten() {
			continue
		}
		name := h.in(q.GetPath())
		dir, _, err := locate(name, false)
		if err == nil {
			_ = unix.Close(dir)
			return fmt.Errorf("%q: %w", name, fault.ErrExists)
		}
		if !errors.Is(err, fault.ErrNotFound) {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

// before returns the running processes (start time by pid) if spec wants the
// processes that its command leaves to be swept, else nil.
func (h *shell) before(spec *pb.ExecStart) (map[int64]uint64, error) {
	if !spec.GetSweep() {
		return nil, nil //nolint:nilnil // nothing is to be swept
	}
	t, err := table()
	if err != nil {
		return nil, err
	}
	known := make(map[int64]uint64, len(t))
	for _, p := range t {
		known[int64(p.PID)] = p.Started
	}
	return known, nil
}

// launch starts the command of spec with pipes and a running timeout, and adds
// it to its session. The caller takes our ends of the pipes.
func (h *shell) launch(c *command, spec *pb.ExecStart) (_ *pipe.Set, err error) {
	defer func() { h.conn.s.starts(err) }()
	p, err := prepare(spec, h.defaults)
	if err != nil {
		return nil, err
	}
	kept := spec.GetKeep()
	fds, err := pipe.Open([3]bool{spec.GetStdin(), kept || !spec.GetDiscardStdout(), kept || !spec.GetDiscardStderr()})
	if err != nil {
		return nil, err
	}
	if err = h.conn.s.add(c); err == nil {
		if err = h.d.start(c, p, fds.Files()); err != nil {
			h.conn.s.remove(c)
		}
	}
	if err != nil {
		fds.Close()
		return nil, err
	}
	fds.CloseTheirs()
	if ms := spec.GetTimeoutMs(); ms > 0 {
		c.deadline.Store(newDeadline(time.Duration(ms)*time.Millisecond, func() {
			if !c.over() {
				c.timedOut.Store(true)
			}
			h.d.killTree(c.process)
		}))
	}
	return fds, nil
}

// execKept runs a command that continues after its call.
func (h *shell) execKept(st pb.SandboxShell_ExecServer, spec *pb.ExecStart) error {
	if spec.GetId() == "" {
		return fmt.Errorf("%w: a command that is kept needs an id", fault.ErrInvalid)
	}
	c := &command{
		id: spec.GetId(), session: h.conn.s, started: make(chan struct{}), done: make(chan struct{}),
		stdout: ring.New(keptOutput), stderr: ring.New(keptOutput), stdin: &pipe.Input{},
	}
	fds, err := h.launch(c, spec)
	if err != nil {
		return err
	}
	c.stdin.Set(fds.Take(0, "stdin"))
	out, errs := &pipe.Output{File: fds.Take(1, "stdout")}, &pipe.Output{File: fds.Take(2, "stderr")}
	go h.d.tend(c, out, errs)
	return h.follow(st, c, 0, 0, false)
}

// tend copies a kept command's output into its rings until it has ended.
func (d *daemon) tend(c *command, out, errs *pipe.Output) {
	var readers sync.WaitGroup
	to := func(r *ring.Ring) func([]byte) error {
		return func(b []byte) error { _, err := r.Write(b); return err }
	}
	readers.Go(func() { out.Copy(to(c.stdout)) })
	if errs != nil {
		readers.Go(func() { errs.Copy(to(c.stderr)) })
	}
	<-c.process.Ended
	out.End()
	if errs != nil {
		errs.End()
	}
	readers.Wait()
	c.stdin.Close()
	c.stdout.End()
	c.stderr.End()
	d.ended(c)
	close(c.done)
}

// follow sends the output of a kept command to a client until the command has
// ended or the client is gone. It never ends the command.
func (h *shell) follow(st pb.SandboxShell_ExecServer, c *command, outAt, errAt int64, join bool) error {
	out, errs := c.stdout.Read(outAt), c.stderr.Read(errAt)
	defer out.Close()
	defer errs.Close()
	to := &sender{st: st}
	defer to.end()
	if join {
		if err := to.send(&pb.ExecReply{Is: &pb.ExecReply_Joined_{Joined: &pb.ExecReply_Joined{
			StdoutOffset: out.Offset(), StderrOffset: errs.Offset(),
		}}}); err != nil {
			return err
		}
	}
	go c.feed(st, h.conn)
	// Each reader ends also when the client of the other one is gone.
	open, shut := h.conn.until(st.Context())
	defer shut()
	ctx, cancel := context.WithCancelCause(open)
	defer cancel(nil)
	var second error
	var both sync.WaitGroup
	both.Go(func() {
		if second = pass(ctx, errs, func(b []byte, _ int64) error { return to.send(stderr(b)) }); second != nil {
			cancel(second)
		}
	})
	first := pass(ctx, out, func(b []byte, _ int64) error { return to.send(stdout(b)) })
	if first != nil {
		cancel(first)
	}
	both.Wait()
	if err := errors.Join(first, second); err != nil {
		if errors.Is(err, io.ErrClosedPipe) {
			return errTaken
		}
		return err
	}
	<-c.done // does not wait long: the rings have ended
	return to.send(&pb.ExecReply{Is: &pb.ExecReply_Exit{Exit: c.exit()}})
}

// errTaken tells a client that another one has joined.
var errTaken = fmt.Errorf("%w: another client has joined", fault.ErrGone)

// pass copies from a ring until its end, and returns nil at the end.
func pass(ctx context.Context, from *ring.Reader, send func(b []byte, offset int64) error) error {
	b := make([]byte, 32<<10)
	for {
		n, at, err := from.Next(ctx, b)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = send(b[:n], at)
		}
		if err != nil {
			return err
		}
	}
}

// feed passes standard input on until the client closes its side. If the client
// is gone, standard input is closed too, unless the command is kept and may be
// joined again.
func (c *command) feed(st pb.SandboxShell_ExecServer, conn *connection) {
	for {
		m, err := st.Recv()
		if err == nil {
			err = conn.open()
		}
		if err != nil {
			if errors.Is(err, io.EOF) || !c.kept() {
				c.stdin.Close()
			}
			return
		}
		switch is := m.GetIs().(type) {
		case *pb.ExecRequest_Stdin:
			c.stdin.Write(is.Stdin)
		case *pb.ExecRequest_CloseStdin:
			c.stdin.Close()
		}
	}
}

// Signal sends a signal to a command, or kills its tree.
func (h *shell) Signal(ctx context.Context, q *pb.SignalRequest) (*pb.SignalReply, error) {
	if err := h.conn.open(); err != nil {
		return nil, err
	}
	c, err := h.conn.s.find(q.GetId())
	if err != nil {
		return nil, err
	}
	select {
	case <-c.started:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.process == nil {
		return nil, fmt.Errorf("%w: %q did not start", fault.ErrNotFound, c.id)
	}
	if !q.GetTree() {
		if q.GetSignal() < 1 || q.GetSignal() > 64 {
			return nil, fmt.Errorf("%w: signal %d", fault.ErrInvalid, q.GetSignal())
		}
		return &pb.SignalReply{}, h.d.reap.Signal(c.process, syscall.Signal(q.GetSignal()), true)
	}
	h.d.kill(c)
	select {
	case <-c.process.Ended:
		return &pb.SignalReply{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// kill kills c and all its descendants, and notes that we did it.
func (d *daemon) kill(c *command) {
	if !c.over() {
		c.killed.Store(true)
	}
	d.killTree(c.process)
}

// sender lets several goroutines send on one stream, and drops what they send
// after the call has ended.
type sender struct {
	mu    sync.Mutex
	st    pb.SandboxShell_ExecServer
	ended bool
}

func (s *sender) send(m *pb.ExecReply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return io.ErrClosedPipe
	}
	return s.st.Send(m)
}

func (s *sender) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

func stdout(b []byte) *pb.ExecReply { return &pb.ExecReply{Is: &pb.ExecReply_Stdout{Stdout: b}} }
func stderr(b []byte) *pb.ExecReply { return &pb.ExecReply{Is: &pb.ExecReply_Stderr{Stderr: b}} }
