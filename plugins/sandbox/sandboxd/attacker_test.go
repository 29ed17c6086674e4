package sandboxd_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{Before: sandboxd.LeaveOff, Programs: map[string]func([]string) error{
		"signals": signals, "queued": queued, "intrude": intrude, "limits": limits, "socket": socket, "bomb": bomb, "naive": naive,
		"headless": headless, "chain": chain, "vfork": vfork, "waker": waker, "lingering": lingering, "processors": processors, "peek": peek,
		"powers": powers,
	}}))
}

// init keeps main on the first thread for a program that is to end that one, or whose
// state is to be that of the process.
func init() {
	if len(os.Args) > 2 && (os.Args[2] == "headless" || os.Args[2] == "vfork") {
		runtime.LockOSThread()
	}
}

// headless goes on without its first thread, for ever.
func headless([]string) error {
	Headless(os.Stdout, solved)
	return nil
}

// chain is a process that makes the next and ends, and so on, for ever.
func chain([]string) error {
	Chain(os.Stdout, solved)
	return nil
}

// solved is what the tests of internal/e2e ask for.
var solved = NewWork("/app/done", "")

// waker has itself continued again and again, by timers that send it SIGCONT, and
// stops itself each time after it has written something.
func waker([]string) error {
	f, err := os.Create("/tmp/woken")
	if err != nil {
		return err
	}
	for n := range 200 { // a SIGSTOP discards a pending SIGCONT
		event := [8]uint64{1: uint64(unix.SIGCONT)} // struct sigevent, SIGEV_SIGNAL
		var id int32
		when := [2]unix.Timespec{{}, unix.NsecToTimespec(int64(n+1) * int64(20*time.Millisecond))} // struct itimerspec
		if _, _, no := unix.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id))); no != 0 {
			return no
		}
		if _, _, no := unix.RawSyscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&when)), 0, 0, 0); no != 0 {
			return no
		}
	}
	fmt.Fprintln(os.Stdout, "up")
	for {
		_, _ = f.WriteString("x")
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
}

// What follows runs in the sandbox, as its root, against PID 1. Each line that
// it prints begins with what was tried; those that begin with + succeeded.

func tried(what string, err error) { Tried(os.Stdout, what, err) }

// succeeded are the attempts that worked, of what an attacker printed.
func succeeded(out string) (what []string) {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "+ "); ok {
			name, _, _ = strings.Cut(name, ":")
			what = append(what, name)
		}
	}
	return what
}

// vfork waits for a child that neither executes anything nor ends.
func vfork([]string) error {
	fmt.Fprintln(os.Stdout, "up")
	if pid, _, _ := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_VFORK, 0, 0, 0, 0, 0); pid == 0 {
		for {
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	return nil
}

// lingering leaves a process that was killed and does not end: the kernel lets
// the first process of a pid namespace end only after all others of the
// namespace were waited for.
func lingering([]string) error {
	fork := func(flags uintptr) uintptr {
		pid, _, _ := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		return pid
	}
	wait := func() {
		for {
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	if fork(unix.CLONE_NEWUSER) > 0 {
		fmt.Fprintln(os.Stdout, "up")
		return nil
	}
	_, _, _ = unix.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWPID, 0, 0)
	first := fork(0)
	if first == 0 {
		wait()
	}
	if fork(0) == 0 { // never waited for
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, _, _ = unix.RawSyscall(unix.SYS_KILL, first, uintptr(unix.SIGKILL), 0)
	wait()
	return nil
}

// signals sends every signal with kill.
func signals([]string) error {
	for s := 1; s <= 64; s++ {
		_ = syscall.Kill(1, syscall.Signal(s))
	}
	return nil
}

// queued sends every signal with a code of the sender's choosing: SI_QUEUE,
// SI_TIMER, SI_ASYNCIO, SI_SIGIO.
func queued([]string) error {
	for _, code := range []int32{-1, -2, -4, -5} {
		for s := 1; s <= 64; s++ {
			var info [128]byte
			*(*int32)(unsafe.Pointer(&info[0])) = int32(s)
			*(*int32)(unsafe.Pointer(&info[8])) = code
			_, _, _ = unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(s), uintptr(unsafe.Pointer(&info[0])))
		}
	}
	return nil
}

// intrude looks for a way into PID 1's memory and files, and out of the sandbox.
func intrude([]string) error {
	for _, f := range []string{"/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/auxv", "/proc/1/exe", "/proc/1/root/", "/proc/1/fd/0"} {
		h, err := os.OpenFile(f, os.O_RDONLY, 0)
		if err == nil {
			_ = h.Close()
		}
		tried("open "+f, err)
	}
	var b [8]byte
	_, err := unix.ProcessVMReadv(1, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	if errors.Is(err, syscall.EFAULT) { // allowed, but nothing is there
		err = nil
	}
	tried("process_vm_readv", err)
	if fd, e := unix.PidfdOpen(1, 0); e == nil {
		_, err = unix.PidfdGetfd(fd, 5, 0)
		if errors.Is(err, syscall.EBADF) {
			err = nil
		}
		tried("pidfd_getfd", err)
	}
	ns, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY, 0)
	if err == nil {
		err = unix.Setns(ns, 0)
	}
	tried("setns", err)
	tried("write /berth/x", os.WriteFile("/berth/x", nil, 0o600))
	tried("replace /berth/sandboxd", os.Rename("/berth/sandboxd", "/berth/y"))
	tried("mount over /berth", unix.Mount("x", "/berth", "tmpfs", 0, ""))
	tried("remount /berth", unix.Mount("", "/berth", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	err = unix.PtraceSeize(1)
	tried("ptrace", err)
	return nil
}

// peek looks for a way into a program of another session, of that process and user: as
// root, then as that user, whom root may become.
func peek(args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	peekAs(pid, "")
	runtime.LockOSThread() // the ids are those of the thread
	if err = errors.Join(unix.Setresgid(uid, uid, uid), unix.Setresuid(uid, uid, 0)); err != nil {
		return err
	}
	peekAs(pid, " as its user")
	return nil
}

func peekAs(pid int, as string) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	for _, f := range []string{"mem", "environ", "root/", "fd/1"} {
		h, err := os.OpenFile(dir+f, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			_ = h.Close()
		}
		tried("open "+f+as, err)
	}
	var b [8]byte
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	if errors.Is(err, syscall.EFAULT) { // allowed, but nothing is there
		err = nil
	}
	tried("process_vm_readv"+as, err)
	if fd, e := unix.PidfdOpen(pid, 0); e == nil {
		taken, e := unix.PidfdGetfd(fd, 0, 0)
		if e == nil {
			_ = unix.Close(taken)
		}
		tried("pidfd_getfd"+as, e)
	}
	if err = unix.PtraceSeize(pid); err == nil {
		_ = unix.PtraceDetach(pid)
	}
	tried("ptrace"+as, err)
	h, err := os.OpenFile(dir+"fd/0", os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		_, err = h.WriteString("forged\n")
		_ = h.Close()
	}
	tried("write into its pipe"+as, err)
}

// limits does to PID 1 what equal ids allow.
func limits([]string) error {
	Limits(os.Stdout, 1)
	return nil
}

// processors keeps one thread of PID 1 to the first processor.
func processors([]string) error {
	var one unix.CPUSet
	one.Set(0)
	return unix.SchedSetaffinity(1, &one)
}

// socket connects to a socket of the control folder, and says something.
func socket(args []string) error {
	c, err := net.Dial("unix", "/berth/"+args[0]) //nolint:noctx // an attacker has no context
	if err == nil {
		_, err = c.Write([]byte("brt1C0123456789abcdef"))
		_ = c.Close()
	}
	tried("connect", err)
	if err != nil {
		return nil //nolint:nilerr // it is told
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: "/berth/" + args[0]})
		_ = unix.Close(fd)
		if errors.Is(err, syscall.EAGAIN) { // the queue is full: nobody else can connect
			tried("fill the queue", nil)
			return nil
		}
		if err != nil {
			tried("fill the queue", err)
			return nil
		}
	}
	return errors.New("the queue does not fill")
}

// bomb forks until the kernel refuses, for the given time, and says when the
// first refusal came.
func bomb(args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	said := false
	for end := time.Now().Add(d); time.Now().Before(end); {
		// A child that does nothing but wait: cheaper than a program.
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", args[0][:1]}, &syscall.ProcAttr{Env: []string{}})
		if err != nil && !said {
			said = true
			fmt.Fprintln(os.Stdout, "full:", err)
		}
		if pid == 0 {
			time.Sleep(100 * time.Microsecond) // no process is free: others may end one
		}
	}
	return nil
}

// naive writes a file the way an unguarded upload would.
func naive(args []string) error {
	f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE, 0o644)
	if err == nil {
		_ = f.Close()
	}
	tried("open", err)
	return nil
}
