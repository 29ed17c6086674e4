package become

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RefuseArgument begins an argument of sandboxd that names system calls for
// Refuse, separated by commas.
const RefuseArgument = "-refuse="

// refusable are the numbers of system calls by their names, and for each name in
// the order of the ABIs of the machine.
var refusable = map[string]map[string][]uint32{
	"amd64": {
		"bpf": {321, 357}, "fanotify_init": {300, 338}, "lookup_dcookie": {212, 253}, "perf_event_open": {298, 336},
		"quotactl": {179, 131}, "quotactl_fd": {443, 443}, "setdomainname": {171, 121}, "sethostname": {170, 74},
	},
	"arm64": {
		"bpf": {280, 386}, "fanotify_init": {262, 367}, "lookup_dcookie": {18, 249}, "perf_event_open": {241, 364},
		"quotactl": {60, 131}, "quotactl_fd": {443, 443}, "setdomainname": {162, 121}, "sethostname": {161, 74},
	},
}

// archs are the ABIs of each machine, as in refusable.
var archs = map[string][]uint32{
	"amd64": {unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386},
	"arm64": {unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_ARM},
}

// Refusable reports whether Refuse knows a system call on this machine.
func Refusable(call string) bool { return refusable[runtime.GOARCH][call] != nil }

// Refuse makes the kernel refuse system calls, by their names, to this thread and
// to all that it starts, as if they had never been allowed. An engine that gives a
// container a capability also allows system calls in its filter, to every process
// of the container. The capability is sandboxd's alone, and so nobody else is to
// have those calls.
//
// It needs SYS_ADMIN, because no_new_privs stays unset.
func Refuse(calls []string) error {
	for _, c := range calls {
		if !Refusable(c) {
			return fmt.Errorf("refuse the system call %q: its number is not known on %s", c, runtime.GOARCH)
		}
	}
	p := refusing(runtime.GOARCH, calls)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("refuse the system calls %s: %w", strings.Join(calls, ", "), err)
	}
	return nil
}

// refusing is the filter. It allows what it does not know: the engine's own filter
// stays in force.
func refusing(machine string, calls []string) (p []unix.SockFilter) {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		and   = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K

		offNumber, offArch = 0, 4       // of struct seccomp_data
		x32                = 0x40000000 // marks system calls of a third ABI on x86-64

		allow  = unix.SECCOMP_RET_ALLOW
		refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	calls = slices.Sorted(slices.Values(calls))
	for i, arch := range archs[machine] {
		body := []unix.SockFilter{{Code: load, K: offNumber}}
		if machine == "amd64" && i == 0 {
			body = append(body, unix.SockFilter{Code: and, K: ^uint32(x32)})
		}
		for _, c := range calls {
			body = append(body, unix.SockFilter{Code: equal, K: refusable[machine][c][i], Jf: 1}, unix.SockFilter{Code: ret, K: refuse})
		}
		body = append(body, unix.SockFilter{Code: ret, K: allow})
		p = append(p, unix.SockFilter{Code: load, K: offArch}, unix.SockFilter{Code: equal, K: arch, Jf: uint8(len(body))})
		p = append(p, body...)
	}
	return append(p, unix.SockFilter{Code: ret, K: allow})
}
