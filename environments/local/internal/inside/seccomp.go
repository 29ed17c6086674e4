package inside

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A filter of system calls. Like the default profile of container engines, it
// refuses system calls that no capability guards and that kernel exploits used
// most (keys, bpf, performance counters, userfaultfd, io_uring). It also
// refuses sockets to the machine's hypervisor: they belong to no network
// namespace, so a sandbox without a network could use them.

// abi is one way to make system calls on a machine.
type abi struct {
	arch   uint32   // AUDIT_ARCH_*
	socket uint32   // number of socket
	denied []uint32 // numbers that are always refused
}

// abis are those of each machine, the native one first.
var abis = map[string][]abi{
	"amd64": {
		{unix.AUDIT_ARCH_X86_64, 41, []uint32{248, 249, 250, 298, 321, 323, 425, 426, 427}},
		// 102 is socketcall; a filter cannot see its arguments.
		{unix.AUDIT_ARCH_I386, 359, []uint32{102, 286, 287, 288, 336, 357, 374, 425, 426, 427}},
	},
	"arm64": {
		{unix.AUDIT_ARCH_AARCH64, 198, []uint32{217, 218, 219, 241, 280, 282, 425, 426, 427}},
		{unix.AUDIT_ARCH_ARM, 281, []uint32{102, 309, 310, 311, 364, 386, 388, 425, 426, 427}},
	},
}

// x32 marks system calls of a third ABI on x86-64, which no program uses.
const x32 = 0x40000000

// program returns the filter for a machine. It allows system calls that it does
// not know.
func program(machine string) (p []unix.SockFilter) {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atMost = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K

		offNumber, offArch, offArgument = 0, 4, 16 // of struct seccomp_data; little-endian

		allow  = unix.SECCOMP_RET_ALLOW
		refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		family = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	)
	for i, a := range abis[machine] {
		var body []unix.SockFilter
		add := func(code uint16, k uint32, yes, no uint8) {
			body = append(body, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
		}
		add(load, offNumber, 0, 0)
		if machine == "amd64" && i == 0 {
			add(atMost, x32, 0, 1)
			add(ret, absent, 0, 0)
		}
		for _, n := range a.denied {
			add(equal, n, 0, 1)
			add(ret, refuse, 0, 0)
		}
		add(equal, a.socket, 0, 3)
		add(load, offArgument, 0, 0)
		add(equal, unix.AF_VSOCK, 0, 1)
		add(ret, family, 0, 0)
		add(ret, allow, 0, 0)
		p = append(p, unix.SockFilter{Code: load, K: offArch},
			unix.SockFilter{Code: equal, K: a.arch, Jt: 0, Jf: uint8(len(body))})
		p = append(p, body...)
	}
	return append(p, unix.SockFilter{Code: ret, K: allow})
}

// filterCalls sets the filter on this thread, and so on all processes that it
// starts. It needs CAP_SYS_ADMIN in our user namespace, because no_new_privs
// stays off.
func filterCalls() error {
	p := program(runtime.GOARCH)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}
