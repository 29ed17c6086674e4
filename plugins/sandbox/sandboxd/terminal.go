package sandboxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pipe"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/ring"
)

// Terminal opens a pseudo-terminal or joins one. It carries bytes in both
// directions; the host interprets them as a screen.
func (h *shell) Terminal(st pb.SandboxShell_TerminalServer) error {
	first, err := st.Recv()
	if err == nil {
		err = h.conn.open()
	}
	if err != nil {
		return err
	}
	open := first.GetOpen()
	if open == nil || open.GetId() == "" {
		return fmt.Errorf("%w: the first message does not open a terminal by an id", fault.ErrInvalid)
	}
	var c *command
	at := open.GetOffset()
	if open.GetCommand() != nil {
		at = 0
		c, err = h.openTerminal(open)
	} else if c, err = h.conn.s.find(open.GetId()); err == nil {
		if <-c.started; c.process == nil || c.terminal == nil {
			err = fmt.Errorf("%w: %q is not a terminal", fault.ErrNotFound, open.GetId())
		} else if open.GetRows() > 0 || open.GetColumns() > 0 {
			err = c.resize(open.GetRows(), open.GetColumns())
		}
	}
	if err != nil {
		return err
	}
	out := c.stdout.Read(at)
	defer out.Close()
	if err = st.Send(&pb.TerminalReply{Is: &pb.TerminalReply_Opened_{Opened: &pb.TerminalReply_Opened{Offset: out.Offset()}}}); err != nil {
		return err
	}
	go c.typed(st, h.conn)
	ctx, shut := h.conn.until(st.Context())
	defer shut()
	err = pass(ctx, out, func(b []byte, offset int64) error {
		return st.Send(&pb.TerminalReply{Is: &pb.TerminalReply_Output_{Output: &pb.TerminalReply_Output{Offset: offset, Data: b}}})
	})
	switch {
	case errors.Is(err, io.ErrClosedPipe):
		return errTaken
	case err != nil:
		return err
	}
	<-c.done
	return st.Send(&pb.TerminalReply{Is: &pb.TerminalReply_Exit{Exit: c.exit()}})
}

// openTerminal starts the command of open on a new pseudo-terminal.
func (h *shell) openTerminal(open *pb.TerminalOpen) (_ *command, err error) {
	defer func() { h.conn.s.starts(err) }()
	spec := open.GetCommand()
	if spec.GetId() != "" || spec.GetStdin() || spec.GetKeep() || spec.GetTimeoutMs() != 0 {
		return nil, fmt.Errorf("%w: a terminal's command has no id, stdin, keep or timeout of its own", fault.ErrInvalid)
	}
	p, err := prepare(spec, h.defaults, "TERM=xterm-256color")
	if err != nil {
		return nil, err
	}
	p.attr.Sys.Setctty, p.attr.Sys.Ctty = true, 0
	master, slave, err := openPTY()
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", fault.Errno(err))
	}
	f := os.NewFile(uintptr(master), "terminal")
	c := &command{
		id: open.GetId(), session: h.conn.s, started: make(chan struct{}), done: make(chan struct{}),
		stdout: ring.New(keptOutput), stderr: ring.New(0), stdin: &pipe.Input{}, terminal: f,
	}
	if err = c.resize(cmp.Or(open.GetRows(), 24), cmp.Or(open.GetColumns(), 80)); err == nil {
		// The slave must belong to the user of the command, or programs cannot
		// open /dev/tty again.
		_ = unix.Fchown(slave, int(p.attr.Sys.Credential.Uid), -1)
		err = h.conn.s.add(c)
	}
	if err == nil {
		fd := uintptr(slave)
		if err = h.d.start(c, p, []uintptr{fd, fd, fd}); err != nil {
			h.conn.s.remove(c)
		}
	}
	_ = unix.Close(slave)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	go h.d.tend(c, &pipe.Output{File: f, Terminal: true}, nil)
	return c, nil
}

// typed passes the client's input on until the client is gone.
func (c *command) typed(st pb.SandboxShell_TerminalServer, conn *connection) {
	ctx := st.Context()
	for {
		m, err := st.Recv()
		if err != nil || conn.open() != nil {
			return
		}
		switch is := m.GetIs().(type) {
		case *pb.TerminalRequest_Input:
			// If a program does not read, the terminal's buffer fills. That
			// must not block the client forever.
			stop := context.AfterFunc(ctx, func() { _ = c.terminal.SetWriteDeadline(time.Unix(1, 0)) })
			_, _ = c.terminal.Write(is.Input)
			if !stop() {
				_ = c.terminal.SetWriteDeadline(time.Time{})
				return
			}
		case *pb.TerminalRequest_Resize:
			_ = c.resize(is.Resize.GetRows(), is.Resize.GetColumns())
		}
	}
}

// resize sets the size of the screen. A zero leaves that dimension unchanged.
func (c *command) resize(rows, columns uint32) error {
	raw, err := c.terminal.SyscallConn()
	if err != nil {
		return nil //nolint:nilerr // closed: the command has ended
	}
	if e := raw.Control(func(fd uintptr) {
		var size *unix.Winsize
		if size, err = unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err != nil {
			return
		}
		const most = 0xffff
		size.Row, size.Col = uint16(min(cmp.Or(rows, uint32(size.Row)), most)), uint16(min(cmp.Or(columns, uint32(size.Col)), most))
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size)
	}); e != nil {
		return nil //nolint:nilerr // closed: the command has ended
	}
	return fault.Errno(err)
}

// openPTY opens a pair without trusting names in the sandbox: it checks that
// the master is the real device (a FIFO in its place would block forever), and
// opens the slave through the master instead of by path.
func openPTY() (master, slave int, err error) {
	for _, path := range []string{"/dev/pts/ptmx", "/dev/ptmx"} {
		master, err = unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if e := unix.Fstat(master, &st); e != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(5, 2) {
			_ = unix.Close(master)
			err = syscall.ENXIO
			continue
		}
		break
	}
	if err != nil {
		return -1, -1, err
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil {
		slave, err = peer(master)
	}
	if err != nil {
		_ = unix.Close(master)
		return -1, -1, err
	}
	return master, slave, nil
}

// peer opens the other end of a master (TIOCGPTPEER takes open flags by value).
func peer(master int) (int, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
