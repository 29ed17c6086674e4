// Package pipe is our side of a command's standard files and terminals: it reads
// what a command says until it ends, and no longer, without ever making the
// command wait for somebody who is gone.
//
// It must not hold a thread while it waits, and must not know what it carries.
package pipe

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// Output is the reading end of a pipe or the master of a terminal.
type Output struct {
	File     *os.File
	Terminal bool // File is a master
}

// Buffers, small ones because most commands say little.
var (
	small = sync.Pool{New: func() any { b := make([]byte, 4<<10); return &b }}
	large = sync.Pool{New: func() any { b := make([]byte, stream.Chunk); return &b }}
)

// Deadlines: one that wakes up a blocked call, and none.
var (
	past  = time.Unix(1, 0)
	never time.Time
)

// End tells Copy that the command has ended. It may come before Copy, and after
// it.
func (o *Output) End() { _ = o.File.SetReadDeadline(past) } // wakes the reader, if there is one

// Copy gives what is written to sink until every writer is gone, or, after End,
// until what the command wrote before it ended has been read. A writer that is
// left then is drained in the background: closing the pipe would kill it with
// SIGPIPE. After an error of sink it reads on, since the command must not
// block.
func (o *Output) Copy(sink func([]byte) error) {
	pool := &small
	buffer, ok := pool.Get().(*[]byte)
	if !ok {
		return
	}
	defer func() { pool.Put(buffer) }()
	give := func(n int) {
		if n > 0 && sink != nil && sink((*buffer)[:n]) != nil {
			sink = nil
		}
	}
	for {
		n, err := o.File.Read(*buffer)
		give(n)
		if n == len(*buffer) && pool == &small {
			if b, ok := large.Get().(*[]byte); ok {
				small.Put(buffer)
				pool, buffer = &large, b
				o.grow()
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) { // the last writer is gone (of a terminal: EIO)
			_ = o.File.Close()
			return
		}
		break
	}
	if !o.rest(*buffer, give) {
		_ = o.File.Close()
		return
	}
	_ = o.File.SetReadDeadline(never)
	go func() {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{o.File})
		_ = o.File.Close()
	}()
}

// lingering is how long a terminal may take to pass on what was written: the
// kernel does it in the background.
const lingering = 30 * time.Millisecond

// rest reads what a command wrote before it ended: what is in the pipe now, and
// no more, since somebody else may write on for ever. It returns whether there
// are writers left.
func (o *Output) rest(buf []byte, give func(int)) (writers bool) {
	limit := time.Now().Add(lingering)
	for left := o.waiting(); ; {
		if left <= 0 {
			if !o.Terminal || time.Now().After(limit) {
				break
			}
			left = max(o.waiting(), 1)
		}
		n, err := o.readNow(buf[:min(len(buf), left)])
		give(n)
		left -= n
		switch {
		case errors.Is(err, syscall.EAGAIN) && o.Terminal && time.Now().Before(limit):
			time.Sleep(time.Millisecond)
		case errors.Is(err, syscall.EAGAIN):
			return true
		case err != nil || n == 0: // EIO of a terminal, or the end
			return false
		}
	}
	return !o.hungUp()
}

// hungUp is true when there is no writer any more.
func (o *Output) hungUp() (yes bool) {
	if raw, err := o.File.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			_, err := unix.Poll(p, 0)
			yes = err == nil && p[0].Revents&unix.POLLHUP != 0 && p[0].Revents&unix.POLLIN == 0
		})
	}
	return yes
}

// waiting is how many bytes can be read now.
func (o *Output) waiting() (n int) {
	if raw, err := o.File.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}

// grow enlarges the pipe. Through SyscallConn: os.File.Fd would put the file in
// blocking mode, and every reader would hold a thread from then on.
func (o *Output) grow() {
	if raw, err := o.File.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
}

// readNow reads without waiting. A deadline of now would not do: it makes Read
// fail even when there is something to read.
func (o *Output) readNow(b []byte) (n int, err error) {
	raw, err := o.File.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), b) }); e != nil {
		return 0, e
	}
	return max(n, 0), err
}

// Input is the writing end of a command's standard input. Without a file, or
// closed, it swallows: a command that does not read is no error of ours.
type Input struct {
	mu sync.Mutex
	f  *os.File
}

// Set gives it its file, before the first write.
func (i *Input) Set(f *os.File) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.f = f
}

// Write writes b.
func (i *Input) Write(b []byte) {
	i.mu.Lock()
	f := i.f
	i.mu.Unlock()
	if f == nil {
		return
	}
	if _, err := f.Write(b); err != nil {
		i.Close()
	}
}

// Close may be called while Write waits, and ends it.
func (i *Input) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.f != nil {
		_ = i.f.Close()
		i.f = nil
	}
}
