package sandboxd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// What each kind of sandbox lets root do to PID 1. Whatever it lets it do is
// noticed.
func TestLimitsOfPID1AreItsOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		o         sandboxtest.Options
		succeeds  []string // of limits
		refuses   []string
		noticedAs string // empty: nothing has changed
	}{
		{
			"without the guards",
			sandboxtest.Options{ManyIDs: true, NoOwnCap: true, Without: []string{"mixture"}},
			[]string{"take its id", "prlimit with its id", "prlimit of a thread with its id", "sched_setscheduler with its id"},
			[]string{"prlimit", "sched_setscheduler"},
			"limit FSIZE is 0:0, and was unlimited:unlimited at its start",
		},
		{
			"without a capability of its own",
			sandboxtest.Options{ManyIDs: true, NoOwnCap: true},
			[]string{"take its id", "sched_setscheduler with its id"},
			[]string{"prlimit", "prlimit of a thread", "prlimit with its id", "prlimit of a thread with its id", "sched_setscheduler"},
			"the scheduling policy of its thread",
		},
		{
			"all guards", sandboxtest.Options{ManyIDs: true}, []string{"take its id"}, []string{
				"prlimit", "prlimit of a thread", "sched_setscheduler", "sched_setaffinity", "setpriority",
				"prlimit with its id", "prlimit of a thread with its id", "sched_setscheduler with its id", "sched_setaffinity with its id", "setpriority with its id",
			}, "",
		},
		{"one id", sandboxtest.Options{OneID: true}, []string{"prlimit"}, []string{"sched_setscheduler", "sched_setaffinity"}, "limit FSIZE is 0:0"},
		{"one id, without a capability of its own", sandboxtest.Options{OneID: true, NoOwnCap: true}, []string{"prlimit", "sched_setscheduler"}, nil, "limit FSIZE is 0:0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := sandboxtest.Start(t, tt.o)
			if err := b.Untouched(t.Context()); err != nil {
				t.Fatalf("before the attack: %v", err)
			}
			c := b.Shell("agent")
			out, err := attack(t, c, "limits")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, out, tt.succeeds, tt.refuses)
			if noticed(t, b, tt.noticedAs); tt.noticedAs == "" {
				err = serves(t, c)
			}
			if err != nil {
				t.Error(err)
			}
			if told := slices.ContainsFunc(b.Hello.Findings, func(f string) bool { return strings.Contains(f, "lower the limits of PID 1") }); told != tt.o.OneID {
				t.Errorf("findings are %q", b.Hello.Findings)
			}
		})
	}
}

// compare looks for what an attacker did and for what it was refused.
func compare(t *testing.T, out string, succeeds, refuses []string) {
	t.Helper()
	did := succeeded(out)
	for _, what := range succeeds {
		if !slices.Contains(did, what) {
			t.Errorf("%q did not succeed: is the guard still needed?\n%s", what, out)
		}
	}
	for _, what := range refuses {
		if slices.Contains(did, what) || !strings.Contains(out, "- "+what+":") {
			t.Errorf("%q succeeded\n%s", what, out)
		}
	}
}

// noticed looks for what each call of the host says was done to PID 1; empty:
// nothing.
func noticed(t *testing.T, b *sandboxtest.Box, want string) {
	t.Helper()
	_, settled := b.Settle(t.Context(), nil, nil)
	for call, err := range map[string]error{"Untouched": b.Untouched(t.Context()), "Settle": settled} {
		if want == "" && err != nil || want != "" && (!errors.Is(err, host.ErrTampered) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", call, err, want)
		}
	}
}

// Fewer processors for one thread are noticed.
func TestProcessorsOfPID1AreItsOwn(t *testing.T) {
	t.Parallel()
	if runtime.NumCPU() == 1 {
		t.Skip("this machine has one processor")
	}
	b := sandboxtest.Start(t, sandboxtest.Options{OneID: true, NoOwnCap: true})
	if _, err := attack(t, b.Shell("agent"), "processors"); err != nil {
		t.Fatal(err)
	}
	if err := b.Untouched(t.Context()); !errors.Is(err, host.ErrTampered) || !strings.Contains(err.Error(), "processors") {
		t.Errorf("%v, want that it is kept to fewer processors", err)
	}
}

// powers tries what SYS_ADMIN allows, and prints the capabilities of all processes
// but PID 1.
func powers([]string) error {
	for name, call := range map[string]func() error{
		"quotactl":        func() error { return raw(unix.SYS_QUOTACTL, ^uintptr(0)) },
		"perf_event_open": func() error { return raw(unix.SYS_PERF_EVENT_OPEN, 0) },
		"lookup_dcookie":  func() error { return raw(unix.SYS_LOOKUP_DCOOKIE, 0) },
		"bpf":             func() error { return raw(unix.SYS_BPF, ^uintptr(0)) },
		"fanotify_init":   func() error { return raw(unix.SYS_FANOTIFY_INIT, ^uintptr(0)) },
		"sethostname":     func() error { return unix.Sethostname([]byte("forged")) },
		"setdomainname":   func() error { return unix.Setdomainname([]byte("forged")) },
		"unshare mount":   func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		"mount a tmpfs":   func() error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") },
		"bind":            func() error { return unix.Mount("/tmp", "/tmp", "", unix.MS_BIND, "") },
		"unmount":         func() error { return unix.Unmount("/proc", unix.MNT_DETACH) },
		"open a tmpfs": func() error {
			fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		},
	} {
		err := call()
		if err != nil && !errors.Is(err, unix.EPERM) { // the kernel looked at the arguments
			err = nil
		}
		tried(name, err)
	}
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return err
	}
	for _, file := range append(files, "/proc/self/status") {
		text, err := os.ReadFile(file)
		if err != nil || file == "/proc/1/status" {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Cap") {
				fmt.Fprint(os.Stdout, line)
			}
		}
	}
	return nil
}

func raw(nr, first uintptr) error {
	if _, _, errno := unix.RawSyscall6(nr, first, 0, 0, ^uintptr(0), ^uintptr(0), 0); errno != 0 {
		return errno
	}
	return nil
}

// Commands have no capability beyond those of an engine's default, and mount nothing.
func TestCommandsHaveTheCapabilitiesOfAnEngine(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: true})
	if b.Hello.BoundingCapabilities&^become.EngineCaps != 0 {
		t.Errorf("%+v", b.Hello)
	}
	out, err := attack(t, b.Shell("agent"), "powers")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "- mount a tmpfs") || !strings.Contains(out, "- bind") || !strings.Contains(out, "- unmount") || !strings.Contains(out, "CapBnd") {
		t.Errorf("got\n%s", out)
	}
}
