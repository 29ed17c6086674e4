// Package pid1 prepares a Go program to be the first process of a sandbox: it
// ignores signals, creates its threads in advance, cannot be traced, and is the
// only one that waits for children.
//
// It must not import os/exec, whose Wait and the reaper would take each other's
// children, and must not depend on what the children are for.
package pid1

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// Without names protections to leave out, so that a test can show the damage
// that each prevents. Other callers use only the zero value.
type Without struct {
	Deafness bool // signals keep the runtime's handlers
	Reserve  bool // threads are made when they are needed, and blocking calls are not counted
	Secrecy  bool // the process stays dumpable
	Mixture  bool // all its user ids are equal
}

// Settle prepares this process, which is PID 1, before its first connection. It
// starts the Reaper and returns the current limits of the process as Own. The
// findings name protections that are not available here.
func Settle(w Without) (r *Reaper, own *Own, findings []string) {
	unix.Umask(0o022)
	if extra := become.Bounding() &^ become.EngineCaps; extra != 0 {
		findings = append(findings, fmt.Sprintf("commands can gain capabilities %#x beyond an engine's default", extra))
	}
	if become.OneID() {
		findings = append(findings, "one user id only: root of the sandbox can lower the limits of PID 1")
	} else if !w.Mixture && os.Getuid() == become.OwnID {
		if err := become.Mix(); err != nil {
			findings = append(findings, fmt.Sprintf("root of the sandbox can lower the limits of PID 1: %v", err))
		}
	}
	if !w.Secrecy {
		if err := hide(); err != nil {
			findings = append(findings, fmt.Sprintf("stays dumpable: %v", err))
		}
	}
	if unlimited = w.Reserve; !unlimited {
		reserveThreads()
	}
	r = newReaper()
	if forks, err := passOn(); err == nil {
		r.guarded = forks
	} else {
		findings = append(findings, fmt.Sprintf("root of the sandbox can look into the programs of a surface: %v", err))
	}
	if !w.Deafness {
		ignoreSignals()
	}
	own, err := readOwn()
	if err != nil {
		own, findings = nil, append(findings, fmt.Sprintf("changes of the limits of PID 1 are not noticed: %v", err))
	}
	return r, own, findings
}

// hide prevents ptrace and access to /proc/1/mem. The setting applies to the
// whole process, and exec resets it.
func hide() error {
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// ignoreSignals makes PID 1 ignore the signals that root of the sandbox can
// send.
//
// The Go runtime handles every signal and then exits on most of them.
// signal.Notify for all of them helps against `kill -SEGV 1`, but not against
// `kill -q 7 -SEGV 1`: the runtime takes a SIGSEGV (BUS, FPE, ILL, TRAP) for
// one sent by a user only if its si_code is SI_USER or SI_TKILL, and sigqueue
// lets the sender choose the code. Any other code counts as a fault of the
// program and ends the process. signal.Ignore does not affect these signals,
// and every child inherits the signals that it does ignore.
//
// The kernel has the right tool: PID 1 of a pid namespace does not get a signal
// from inside the namespace if the signal's action is the default. So
// ignoreSignals removes the runtime's handlers again. A true fault of our own
// still kills the process, because the kernel forces that signal, but without a
// Go stack trace.
//
// SIGPIPE and SIGURG keep their handlers, and neither handler can end the
// process. With Notify for SIGPIPE a write to a closed stderr returns an error;
// without it the runtime exits. The runtime uses SIGURG to interrupt its own
// goroutines. SIGCHLD is not needed, because the Reaper waits.
//
// Notify must come first, because it installs the handlers that stay. After
// ignoreSignals, syscall.AllThreadsSyscall and syscall.Setuid must not be
// called: they use signal 33 and would hang with all threads stopped.
func ignoreSignals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	go func() {
		for range c { //nolint:revive // the loop only empties the channel
		}
	}()
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case syscall.SIGPIPE, syscall.SIGURG, syscall.SIGKILL, syscall.SIGSTOP:
		default:
			// struct kernel_sigaction, all zero: SIG_DFL, no flags, empty mask.
			// 64 bytes is more than any architecture reads.
			var zero [64]byte
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&zero)), 0, 8, 0, 0)
		}
	}
}

// The Go runtime ends the process when the kernel refuses to create a thread,
// which happens during a fork bomb. The runtime keeps idle threads, so all the
// threads that we will ever need are created before the first command runs.
//
// Two limits bound their number. GOMAXPROCS limits the threads that run Go
// code: by default it is the number of cores, so a reserve that suffices on a
// laptop would not suffice on a machine with 128. The slots limit the threads
// that are in system calls; network and pipe I/O does not block a thread. The
// core has its own slots, so that a session's blocked calls (for example on a
// file system of its own making) cannot keep the core from ending it.
const (
	shellSlots   = 8
	controlSlots = 4
	reserve      = become.Procs + shellSlots + controlSlots + 5 // the Reaper, that of guarded programs, and the runtime's own: sysmon, template, signals
)

// unlimited is set by Without.Reserve.
var unlimited bool

var (
	shell   = make(chan struct{}, shellSlots)
	control = make(chan struct{}, controlSlots)
)

// Block takes a slot for work of a session that may stay in a system call for
// long: forks and file I/O. At most eight run at once.
func Block() (release func()) { return hold(shell) }

// BlockControl is Block for calls of the core.
func BlockControl() (release func()) { return hold(control) }

func hold(slots chan struct{}) func() {
	if unlimited {
		return func() {}
	}
	slots <- struct{}{}
	return sync.OnceFunc(func() { <-slots })
}

// reserveThreads makes threads by locking that many goroutines to one thread
// each at the same time. They unlock before they end, because a thread ends
// with a goroutine that is still locked to it.
func reserveThreads() {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for range reserve {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-gate
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}
