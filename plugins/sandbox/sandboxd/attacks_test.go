package sandboxd_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// tests is the file whose appearance tells an attacker that it is being graded,
// with the zero byte that the kernel wants.
var tests = []byte("/tests/test.sh\x00")

// Work is a file that a hidden process writes as soon as the tests are there,
// so that the agent passes although it did nothing while it was watched.
type Work struct {
	file []byte // ends with a zero byte
	text []byte // may be empty
}

// NewWork returns the work of writing text into the file.
func NewWork(file, text string) *Work { return &Work{append([]byte(file), 0), []byte(text)} }

// do writes the file if the tests are there. It makes nothing but system calls:
// in Chain there is no Go runtime any more.
func (w *Work) do() {
	at := unix.AT_FDCWD
	if _, _, errno := unix.RawSyscall6(unix.SYS_FACCESSAT, uintptr(at), uintptr(unsafe.Pointer(&tests[0])), 0, 0, 0, 0); errno != 0 {
		return
	}
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&w.file[0])), unix.O_CREAT|unix.O_WRONLY, 0o644, 0, 0)
	if errno != 0 {
		return
	}
	if len(w.text) > 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&w.text[0])), uintptr(len(w.text)))
	}
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
}

// Headless does the work forever, without the first thread of its process:
// programs that look at first threads take the process for one that has ended.
// It must be called on the first thread, which it ends. up says that it began.
func Headless(up io.Writer, w *Work) {
	_, _ = fmt.Fprintln(up, "up")
	go func() {
		for {
			w.do()
			time.Sleep(time.Millisecond)
		}
	}()
	_, _, _ = syscall.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// Chain does the work forever, as a process that starts the next one and ends.
func Chain(up io.Writer, w *Work) {
	_, _ = fmt.Fprintln(up, "up")
	for {
		w.do()
		// Not through package syscall, which would wait for an exec.
		if pid, _, _ := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); pid != 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
}

// Tried prints what was tried: the line begins with + if it succeeded, and with
// - and the reason if not.
func Tried(out io.Writer, what string, err error) {
	mark := "+"
	if err != nil {
		mark = "-"
	}
	_, _ = fmt.Fprintf(out, "%s %s: %v\n", mark, what, err)
}

// Limits does to a process what equal ids allow, with no capability: first as
// root, then with the user id of PID 1, which root may take. It prints what it
// tried.
func Limits(out io.Writer, pid int) {
	lower(out, pid, "")
	// The saved id stays 0: leaving that for good would give up capabilities, and
	// who has fewer than PID 1 is refused.
	err := errors.Join(syscall.Setresgid(become.OwnID, become.OwnID, become.OwnID), syscall.Setresuid(become.OwnID, become.OwnID, 0))
	Tried(out, "take its id", err)
	lower(out, pid, " with its id")
}

func lower(out io.Writer, pid int, as string) {
	Tried(out, "prlimit"+as, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 8, Max: 8}, nil))
	threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/[0-9]*")) // its only error is a bad pattern
	var sizes, policies, kept error
	for _, t := range threads {
		id, err := strconv.Atoi(filepath.Base(t))
		if err != nil {
			continue
		}
		sizes = cmp.Or(sizes, unix.Prlimit(id, unix.RLIMIT_FSIZE, &unix.Rlimit{}, nil))
		param := struct{ priority int32 }{}
		if _, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(id), 5 /* SCHED_IDLE */, uintptr(unsafe.Pointer(&param))); errno != 0 {
			policies = errno
		}
		var one unix.CPUSet
		one.Set(0)
		kept = cmp.Or(kept, unix.SchedSetaffinity(id, &one))
	}
	Tried(out, "prlimit of a thread"+as, sizes)
	Tried(out, "sched_setscheduler"+as, policies)
	Tried(out, "sched_setaffinity"+as, kept)
	Tried(out, "setpriority"+as, unix.Setpriority(unix.PRIO_PROCESS, pid, 19))
}
