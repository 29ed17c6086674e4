package become

import (
	"testing"

	"golang.org/x/sys/unix"
)

// run evaluates a filter as the kernel does, for the few operations it uses.
func run(t *testing.T, p []unix.SockFilter, number, arch uint32) uint32 {
	t.Helper()
	var a uint32
	for i := 0; i < len(p); i++ {
		switch f := p[i]; f.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = map[uint32]uint32{0: number, 4: arch}[f.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= f.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			if a != f.K {
				i += int(f.Jf)
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
	t.Parallel()
	const refused = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	some := []string{"sethostname", "bpf", "quotactl"}
	for _, tt := range []struct {
		name, machine string
		number, arch  uint32
		want          uint32
	}{
		{"read", "amd64", 0, unix.AUDIT_ARCH_X86_64, unix.SECCOMP_RET_ALLOW},
		{"bpf", "amd64", 321, unix.AUDIT_ARCH_X86_64, refused},
		{"sethostname", "amd64", 170, unix.AUDIT_ARCH_X86_64, refused},
		{"one that was not named", "amd64", 300, unix.AUDIT_ARCH_X86_64, unix.SECCOMP_RET_ALLOW},
		{"x32", "amd64", 0x40000000 | 321, unix.AUDIT_ARCH_X86_64, refused},
		{"x32: read", "amd64", 0x40000000, unix.AUDIT_ARCH_X86_64, unix.SECCOMP_RET_ALLOW},
		{"32 bits: quotactl", "amd64", 131, unix.AUDIT_ARCH_I386, refused},
		{"32 bits: the number of a 64-bit bpf", "amd64", 321, unix.AUDIT_ARCH_I386, unix.SECCOMP_RET_ALLOW},
		{"ARM: bpf", "arm64", 280, unix.AUDIT_ARCH_AARCH64, refused},
		{"ARM, 32 bits: sethostname", "arm64", 74, unix.AUDIT_ARCH_ARM, refused},
	} {
		if got := run(t, refusing(tt.machine, some), tt.number, tt.arch); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

// The numbers of this machine, against those that the library knows.
func TestNumbersOfSystemCallsAreThoseOfThisMachine(t *testing.T) {
	t.Parallel()
	machine := "amd64"
	if unix.SYS_SOCKET != 41 {
		machine = "arm64"
	}
	want := map[string]uint32{
		"bpf": unix.SYS_BPF, "fanotify_init": unix.SYS_FANOTIFY_INIT, "lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE, "perf_event_open": unix.SYS_PERF_EVENT_OPEN,
		"quotactl": unix.SYS_QUOTACTL, "quotactl_fd": unix.SYS_QUOTACTL_FD, "setdomainname": unix.SYS_SETDOMAINNAME, "sethostname": unix.SYS_SETHOSTNAME,
	}
	for name, numbers := range refusable[machine] {
		if numbers[0] != want[name] || len(numbers) != len(archs[machine]) || !Refusable(name) {
			t.Errorf("%s: %v, want %d first", name, numbers, want[name])
		}
	}
	if len(want) != len(refusable["amd64"]) || len(want) != len(refusable["arm64"]) || Refusable("setns") {
		t.Error("a system call is missing in one of the lists, or is there too many")
	}
}
