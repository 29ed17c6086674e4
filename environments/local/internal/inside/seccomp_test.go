package inside

import (
	"testing"

	"golang.org/x/sys/unix"
)

// run evaluates a filter as the kernel does, for the few operations it uses.
func run(t *testing.T, p []unix.SockFilter, number, arch, argument uint32) uint32 {
	t.Helper()
	var a uint32
	for i := 0; i < len(p); i++ {
		switch f := p[i]; f.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = map[uint32]uint32{0: number, 4: arch, 16: argument}[f.K]
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			if i += int(f.Jf); a == f.K {
				i += int(f.Jt) - int(f.Jf)
			}
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			if i += int(f.Jf); a >= f.K {
				i += int(f.Jt) - int(f.Jf)
			}
		case unix.BPF_RET | unix.BPF_K:
			return f.K
		default:
			t.Fatalf("operation %#x", f.Code)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func TestFilterRefusesWhatItShould(t *testing.T) {
	const (
		refused  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		noFamily = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
		absent   = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	for _, tt := range []struct {
		name             string
		machine          string
		number, arch, by uint32
		want             uint32
	}{
		{"read", "amd64", 0, unix.AUDIT_ARCH_X86_64, 0, unix.SECCOMP_RET_ALLOW},
		{"socket of a family", "amd64", 41, unix.AUDIT_ARCH_X86_64, unix.AF_INET, unix.SECCOMP_RET_ALLOW},
		{"socket to the hypervisor", "amd64", 41, unix.AUDIT_ARCH_X86_64, unix.AF_VSOCK, noFamily},
		{"keyctl", "amd64", 250, unix.AUDIT_ARCH_X86_64, 0, refused},
		{"io_uring_setup", "amd64", 425, unix.AUDIT_ARCH_X86_64, 0, refused},
		{"x32", "amd64", 0x40000000 | 41, unix.AUDIT_ARCH_X86_64, unix.AF_VSOCK, absent},
		{"32 bits: read", "amd64", 3, unix.AUDIT_ARCH_I386, 0, unix.SECCOMP_RET_ALLOW},
		{"32 bits: number of a 64-bit socket", "amd64", 41, unix.AUDIT_ARCH_I386, unix.AF_VSOCK, unix.SECCOMP_RET_ALLOW},
		{"32 bits: socket", "amd64", 359, unix.AUDIT_ARCH_I386, unix.AF_VSOCK, noFamily},
		{"32 bits: socketcall", "amd64", 102, unix.AUDIT_ARCH_I386, 0, refused},
		{"ARM: socket", "arm64", 198, unix.AUDIT_ARCH_AARCH64, unix.AF_VSOCK, noFamily},
		{"ARM: bpf", "arm64", 280, unix.AUDIT_ARCH_AARCH64, 0, refused},
		{"ARM, 32 bits: socket", "arm64", 281, unix.AUDIT_ARCH_ARM, unix.AF_VSOCK, noFamily},
		{"a machine that is not known", "riscv64", 198, 0, unix.AF_VSOCK, unix.SECCOMP_RET_ALLOW},
	} {
		if got := run(t, program(tt.machine), tt.number, tt.arch, tt.by); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

// The numbers of this machine, against those that the library knows.
func TestFilterKnowsTheNumbersOfThisMachine(t *testing.T) {
	p := program("amd64")
	arch := uint32(unix.AUDIT_ARCH_X86_64)
	for _, n := range []uint32{
		unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	} {
		if unix.SYS_SOCKET != 41 {
			p, arch = program("arm64"), unix.AUDIT_ARCH_AARCH64
		}
		if got := run(t, p, n, arch, 0); got == unix.SECCOMP_RET_ALLOW {
			t.Errorf("system call %d is allowed", n)
		}
	}
}
