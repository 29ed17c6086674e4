package sandboxd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

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
