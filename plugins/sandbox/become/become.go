// Package become changes the credentials of a thread to those of sandboxd, an
// engine's default capabilities and its own user id, and executes
// sandboxd. It is the last step of a program that builds a sandbox, and the
// first half of sandboxd itself.
//
// It must not import gRPC, or anything else that makes a short-lived program
// start slowly, and it must not start goroutines that matter: what it changes
// is one thread.
package become

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// EngineCaps is what Docker and Podman give a container by default, as a mask
// of 1<<CAP_X. Commands of root get at most this, on every backend. What is
// absent matters most: SYS_PTRACE, SYS_ADMIN, SYS_RESOURCE, SYS_NICE.
var EngineCaps = mask(
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW,
	unix.CAP_SYS_CHROOT, unix.CAP_MKNOD, unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
)

// mask turns a list of capabilities into a set.
func mask(caps ...int) (m uint64) {
	for _, c := range caps {
		m |= 1 << c
	}
	return m
}

// OwnID is the user and group sandboxd runs as, where the user namespace has
// such an id.
//
// Capabilities are not enough to keep root of the sandbox off PID 1, because
// some system calls ask for equal user ids *or* a capability: as user 0 we
// would let any command of root lower our limits (`prlimit --pid 1 --nofile=0`,
// or --cpu=1, at whose end the kernel itself kills PID 1), put us in the idle
// scheduling class, or read our memory. Under an id of our own all of those
// need a capability that commands do not have. Root is merely one of the users
// that commands are started as. It may take this id, too: against that there
// are SavedID and OwnCap.
const OwnID = 65533

// SavedID is the saved user id of sandboxd. The kernel lets a process set the
// limits of another if its user id is equal to all three of the other's, and root
// of the sandbox may take any id: it cannot take two.
const SavedID = 65531

// Mix gives this process, which runs as OwnID, its saved user id. It is for the
// whole process, and for sandboxd only, before it has other signal handlers than
// the runtime's. An exec would undo it.
func Mix() error {
	if err := syscall.Setresuid(-1, -1, SavedID); err != nil {
		return fmt.Errorf("set the saved user id to %d: %w", SavedID, err)
	}
	return nil
}

// OwnCap is a capability that sandboxd has, beside its own id, and that no
// command can get. It is good for nothing in there, and that is not what it is
// for: who sets the scheduling policy, the processors or the priority of a
// thread must have an equal user id, which root may take, and all the capabilities
// that the thread has. The same holds for tracing a process and for opening its
// files in /proc, so that a program with this capability is protected from those
// without.
const OwnCap = unix.CAP_WAKE_ALARM

// own are the capabilities that sandboxd keeps for itself, where it is given them.
var own = mask(OwnCap)

// Procs is GOMAXPROCS of sandboxd: its reserve of threads is counted with it.
// With a second one each message wakes a thread that looks for more to do: a
// tenth of what a short sandbox costs. The output of one command comes no faster
// with it, that of four at once by a quarter.
const Procs = 1

// RunName is argv[0] of sandboxd's second half, by which it knows itself.
const RunName = "berth-sandboxd"

// Become gives an engine's default capabilities and OwnID to this thread and
// executes path, which is sandboxd, with args after argv[0] = RunName and an
// environment of three settings of the Go runtime. Files above standard error
// are closed. It returns only an error.
//
// The caller must be root of its user namespace and must have locked its
// goroutine to the thread (runtime.LockOSThread in an init function, so that
// it is the first one). Nothing has to be undone after an error: the process
// must end.
//
// Credentials belong to a thread, and a Go program has several before main
// runs. Making each of these calls on all threads (AllThreadsSyscall) stops the
// world 34 times: 5 ms on a busy machine, more than all the rest of the start.
// An exec makes one thread of many and keeps that thread's credentials; it
// costs one.
//
// no_new_privs stays unset, as in an engine's default: it would break sudo and
// su in images that have them, and what a setuid program can gain is capped by
// the bounding set already.
func Become(path string, args ...string) error {
	for c := range 64 {
		if (EngineCaps|own)&(1<<c) == 0 {
			// EINVAL past the kernel's last one; EPERM only without SETPCAP,
			// and then sandboxd reports what is left in Hello.
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
	}
	if err := ChangeID(); err != nil {
		return err
	}
	// Only now: nothing enters the inheritable set that is not in this one.
	for c := range 64 {
		if own&(1<<c) != 0 {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
	}
	// What an engine, or the process that started it, left open would be open in each
	// command. The kernel has this since 5.11; before, it is the engine's care.
	_ = unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	// The runtime reads these: few threads and a small heap, since a machine
	// runs many of us. Set here they cost nothing; set later each stops the
	// world.
	env := []string{"GOMAXPROCS=" + strconv.Itoa(Procs), "GOGC=200", "GOMEMLIMIT=48MiB"}
	return fmt.Errorf("execute %s: %w", path, unix.Exec(path, append([]string{RunName}, args...), env))
}

// ChangeID changes this thread to OwnID, if there is such an id, and carries the
// capabilities over both the change and an exec: by default each drops them.
func ChangeID() error {
	keep := (EngineCaps | own) & Bounding()
	if OneID() { // sandboxd reports it
		// For the exec of a program of root, which has all others from the bounding
		// set. If it fails, sandboxd reports what it lacks.
		_ = setCaps(keep, keep&own)
		return nil
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"keep capabilities", func() error { return unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0) }},
		// Raw system calls: the syscall package would do these on all threads.
		{"setgroups", func() error { return raw(unix.SYS_SETGROUPS, 0, 0, 0) }},
		{"setresgid", func() error { return raw(unix.SYS_SETRESGID, OwnID, OwnID, OwnID) }},
		{"setresuid", func() error { return raw(unix.SYS_SETRESUID, OwnID, OwnID, OwnID) }},
		{"capset", func() error { return setCaps(keep, keep) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("change to id %d: %s: %w", OwnID, step.name, err)
		}
	}
	for c := range 64 {
		if keep&(1<<c) != 0 {
			if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
				return fmt.Errorf("change to id %d: ambient capability %d: %w", OwnID, c, err)
			}
		}
	}
	return nil
}

// PassOwn makes this thread one whose children have OwnCap, and no other capability
// that they would not have otherwise. The caller has locked its goroutine to the
// thread, and starts nothing else from it.
func PassOwn() error {
	permitted, err := permitted()
	if err == nil && permitted&mask(OwnCap) == 0 {
		err = errors.New("it is not there")
	}
	if err == nil {
		err = setCaps(permitted, mask(OwnCap))
	}
	if err == nil { // for programs of ordinary users
		err = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, OwnCap, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("pass capability %d on: %w", OwnCap, err)
	}
	return nil
}

// DropInheritable empties the inheritable and with it the ambient set of this
// thread: they carried the capabilities over the exec, and a command of an
// ordinary user would inherit them. sandboxd calls it on each thread that is
// about to fork, which is all that matters: a child has the credentials of the
// thread that made it. The caller has locked its goroutine to the thread.
func DropInheritable() error {
	permitted, err := permitted()
	if err == nil {
		err = setCaps(permitted, 0)
	}
	if err != nil {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	return nil
}

// permitted is the permitted set of the process after Become: nothing changes it
// then.
var permitted = sync.OnceValues(func() (uint64, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted), nil
})

// setCaps sets the effective and permitted, and the inheritable set of this
// thread.
func setCaps(permitted, inheritable uint64) error {
	const lower = 1<<32 - 1
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i, shift := range []int{0, 32} {
		p, h := uint32(permitted>>shift&lower), uint32(inheritable>>shift&lower)
		data[i] = unix.CapUserData{Effective: p, Permitted: p, Inheritable: h}
	}
	return unix.Capset(&head, &data[0]) // of this thread: x/sys does not spread it
}

// raw makes a system call on this thread only.
func raw(nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// Bounding reads the bounding set of this thread as a mask, with one prctl a
// capability, since /proc may not be mounted.
func Bounding() (m uint64) {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if v, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && v == 1 {
			m |= 1 << c
		}
	}
	return m
}

// OneID is true where the user namespace has no id OwnID, that is, where root
// of the sandbox has no other user beside it. It needs /proc.
func OneID() bool {
	return !mapped("/proc/self/uid_map", OwnID) || !mapped("/proc/self/gid_map", OwnID)
}

// mapped says whether id exists in our user namespace.
func mapped(file string, id uint64) bool {
	b, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		from, err1 := strconv.ParseUint(f[0], 10, 32)
		n, err2 := strconv.ParseUint(f[2], 10, 64)
		if err1 == nil && err2 == nil && id >= from && id-from < n {
			return true
		}
	}
	return false
}
