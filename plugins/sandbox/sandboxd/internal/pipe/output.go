// Package pipe is our side of a command's standard files and terminals. It
// reads what a command writes until the command ends, and no longer. It never
// makes the command wait for a reader that is gone.
//
// It must not block a thread while it waits, and must not interpret the data.
package pipe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
)

// Output is the reading end of a pipe or the master of a terminal.
type Output struct {
	File     *os.File
	Terminal bool // File is the master
}

// Deadlines: past wakes up a blocked call, never removes a deadline.
var (
	past  = time.Unix(1, 0)
	never time.Time
)

// End tells Copy that the command has ended. It may be called before or after
// Copy.
func (o *Output) End() { _ = o.File.SetReadDeadline(past) } // wakes the reader, if there is one

// Copy passes output to sink until every writer is gone or, after End, until it
// has read what the command wrote before it ended. If a writer is left then,
// its output is drained in the background, because closing the pipe would kill
// it with SIGPIPE. After an error of sink, Copy reads on, because the command
// must not block.
func (o *Output) Copy(sink func([]byte) error) {
	buffer, grown := make([]byte, 32<<10), false
	give := func(n int) {
		if n > 0 && sink != nil && sink(buffer[:n]) != nil {
			sink = nil
		}
	}
	for {
		n, err := o.File.Read(buffer)
		give(n)
		if n == len(buffer) && !grown { // it writes much
			grown = true
			o.grow()
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
	if !o.rest(buffer, give) {
		_ = o.File.Close()
		return
	}
	_ = o.File.SetReadDeadline(never)
	go func() {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{o.File})
		_ = o.File.Close()
	}()
}

// lingering is the longest time that a terminal with writers may take to pass on
// what was written. The kernel does this in the background. Without writers, all
// of it can be read, whatever the time.
const lingering = 30 * time.Millisecond

// rest reads what a command wrote before it ended. It reads only what is in the
// pipe now, because another process may write forever. It reports whether there
// are writers left.
func (o *Output) rest(buf []byte, give func(int)) (writers bool) {
	limit := time.Now().Add(lingering)
	for left := o.waiting(); ; {
		if left <= 0 {
			if !o.Terminal || time.Now().After(limit) && o.polled()&unix.POLLHUP == 0 {
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

// hungUp reports whether there is no writer any more.
func (o *Output) hungUp() bool { return o.polled()&(unix.POLLHUP|unix.POLLIN) == unix.POLLHUP }

// polled returns what poll says of the file; 0 after an error.
func (o *Output) polled() (events int16) {
	if raw, err := o.File.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(p, 0); err == nil {
				events = p[0].Revents
			}
		})
	}
	return events
}

// waiting returns how many bytes can be read now.
func (o *Output) waiting() (n int) {
	if raw, err := o.File.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}

// grow enlarges the pipe. It uses SyscallConn because os.File.Fd would put the
// file in blocking mode, and every reader would block a thread from then on.
func (o *Output) grow() {
	if raw, err := o.File.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
}

// readNow reads without waiting. It cannot use a deadline of now, because Read
// then fails even if there is data.
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
// after Close, it discards what is written: a command that does not read its
// input is not an error.
type Input struct {
	mu sync.Mutex
	f  *os.File
}

// Set sets the file. It must be called before the first write.
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

// Close may be called while Write waits, and makes Write return.
func (i *Input) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.f != nil {
		_ = i.f.Close()
		i.f = nil
	}
}

// Set holds both ends of a command's three standard files. -1 means none.
type Set struct{ theirs, ours [3]int }

// Open makes pipes for the wanted ones of standard input, output and error. The
// others are /dev/null.
func Open(wanted [3]bool) (p *Set, err error) {
	p = &Set{[3]int{-1, -1, -1}, [3]int{-1, -1, -1}}
	defer func() {
		if err != nil {
			p.Close()
			err = fmt.Errorf("open pipes: %w", fault.Errno(err))
		}
	}()
	for i := range p.theirs {
		if !wanted[i] {
			if p.theirs[i], err = unix.FcntlInt(uintptr(Null()), unix.F_DUPFD_CLOEXEC, 3); err != nil {
				return p, err
			}
			continue
		}
		var fds [2]int
		if err = syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
			return p, err
		}
		if i == 0 {
			p.theirs[i], p.ours[i] = fds[0], fds[1]
		} else {
			p.ours[i], p.theirs[i] = fds[0], fds[1]
		}
		// Set only our end: O_NONBLOCK belongs to the open file, and commands
		// that find it on their stdout lose output (cat, tar and Node do).
		if err = syscall.SetNonblock(p.ours[i], true); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Null is a descriptor of /dev/null. It is opened before any command runs,
// because a command could later put a pipe in its place, and opening that would
// block us.
var Null = sync.OnceValue(func() int {
	fd, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1 // every command without input then fails to start with an error
	}
	return fd
})

// Close closes the ends that are still open.
func (p *Set) Close() {
	closeAll(p.theirs[:])
	closeAll(p.ours[:])
}

// CloseTheirs closes the ends of the command after the command has got them.
func (p *Set) CloseTheirs() { closeAll(p.theirs[:]) }

func closeAll(fds []int) {
	for i, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
			fds[i] = -1
		}
	}
}

// Take returns one of our ends as a file, or nil if there is none. The caller
// owns the file.
func (p *Set) Take(i int, name string) *os.File {
	if p.ours[i] < 0 {
		return nil
	}
	f := os.NewFile(uintptr(p.ours[i]), name)
	p.ours[i] = -1
	return f
}

// Files returns the ends of the command, for a fork.
func (p *Set) Files() []uintptr {
	return []uintptr{uintptr(p.theirs[0]), uintptr(p.theirs[1]), uintptr(p.theirs[2])}
}
