package pipe

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
)

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
