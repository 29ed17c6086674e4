// Package pid1 prepares a Go program to be the first process of a sandbox: it
// ignores signals, has threads in reserve, cannot be traced, and is the only
// one that waits for children.
//
// It must not import os/exec, whose Wait and the reaper would take each other's
// children, and must not know what the children are for.
package pid1

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// Without names protections to leave off, so that a test can show the damage
// that each prevents. The zero value is the only one to be used otherwise.
type Without struct {
	Deafness bool // signals keep the runtime's handlers
	Reserve  bool // threads are made when they are needed, and blocking calls are not counted
	Secrecy  bool // the process stays dumpable
	Mixture  bool // all its user ids are equal
}

// Settle prepares this process, which is PID 1, before its first connection. It
// starts the Reaper and returns the current limits of the process as Own. The
// findings are protections that are not available here.
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
	if !w.Deafness {
		ignoreSignals()
	}
	own, err := readOwn()
	if err != nil {
		own, findings = nil, append(findings, fmt.Sprintf("changes of the limits of PID 1 are not noticed: %v", err))
	}
	return r, own, findings
}

// hide keeps ptrace and /proc/1/mem off. It is of the whole process, and reset
// by exec.
func hide() error {
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// ignoreSignals makes PID 1 deaf to what root of the sandbox can send.
//
// The Go runtime handles every signal and then dies of most. signal.Notify for
// all of them helps against `kill -SEGV 1`, but not against `kill -q 7 -SEGV 1`:
// the runtime takes a SIGSEGV (BUS, FPE, ILL, TRAP) for a user's only when its
// si_code is SI_USER or SI_TKILL, and sigqueue lets the sender choose the code;
// any other is "a fault of ours" and ends the process. signal.Ignore does not
// reach these signals, and what it does reach every child inherits.
//
// The kernel has the right tool: to PID 1 of a pid namespace a signal whose
// action is the default is not delivered at all, when sent from inside. So the
// runtime's handlers are taken away again. A true fault of our own still kills
// us, since the kernel forces that one (without a Go trace: the price).
//
// Kept are SIGPIPE (with Notify a write to a closed stderr is an error, without
// it the runtime exits) and SIGURG, with which the runtime interrupts its own
// goroutines. Neither has a fatal path. SIGCHLD is not needed: the Reaper waits.
//
// Notify must come first: it is what installs the handlers that stay. After
// this syscall.AllThreadsSyscall and syscall.Setuid must not be called any
// more: they work by signal 33, and would hang with the world stopped.
func ignoreSignals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	go func() {
		for range c { //nolint:revive // emptying it is the purpose
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
