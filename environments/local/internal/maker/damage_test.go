package maker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// What a first attempt at such a sandbox does not hold: namespaces alone, in
// which nothing is closed. The tests show the damage, and then that it does not
// happen in a sandbox of ours.

// bare runs a script as the root of such namespaces, in dir; host is the user
// that it is outside.
func bare(t *testing.T, host int, dir, script string) (out string, err error) {
	t.Helper()
	one := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS,
		UidMappings: one(host), GidMappings: one(host),
		Credential: &syscall.Credential{NoSetGroups: true},
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.GidMappings = one(os.Getgid())
	}
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// harmless is a user for bare who is not the host's root, and a folder of its.
func harmless(t *testing.T) (uid int, dir string) {
	t.Helper()
	uid = os.Getuid()
	dir, err := os.MkdirTemp("", "bd") //nolint:usetesting // t.TempDir is below a folder that the user cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if modetest.Process.Mode == ids.RealRoot {
		uid = modetest.User
		if err = os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return uid, dir
}

func TestDamageOfNamespacesAlone(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		uid, dir := harmless(t)
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "data"), []byte("dataset\n"), 0o644), os.WriteFile(filepath.Join(dir, "secret"), []byte("sesame\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		x := newRig(t).open(t, Order{})
		for _, tt := range []struct{ name, program, script string }{
			{"a file of the host", "cat", "cat " + dir + "/data"},
			{"a file that was covered", "mount", "cd " + dir + " && mount --bind /dev/null secret && ! grep -q sesame secret && umount secret && grep sesame secret"},
			{"the processes of the host", "grep", fmt.Sprintf("tr '\\0' ' ' < /proc/%d/cmdline | grep test", os.Getpid())},
			{"a file system of one's own", "mount", "mount -t tmpfs none /mnt"},
			{"a user namespace of one's own", "unshare", "unshare -U true"},
			{"a mount namespace of one's own", "unshare", "unshare -m true"},
			{"another host name", "hostname", "hostname other"},
		} {
			if _, err := exec.LookPath(tt.program); err != nil {
				t.Logf("left out, %s: %v", tt.name, err)
				continue
			}
			if out, err := bare(t, uid, dir, tt.script); err != nil {
				t.Errorf("%s is not a damage any more: %v\n%s", tt.name, err, out)
			}
			if a := x.run(t, 0, "sh", "-c", tt.script); a.Err == "" {
				t.Errorf("in a sandbox, %s: %s", tt.name, a.Out)
			}
		}
	})
}

// The host's root, mapped into a user namespace, has no capability outside of
// it, and writes the host's settings all the same: they belong to user 0.
func TestDamageOfMappingTheHostsRoot(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		if mode != ids.RealRoot {
			t.Skip("only root of the machine can map the ids of other users: run the tests as root")
		}
		const setting = "/proc/sys/kernel/panic"
		was, err := os.ReadFile(setting)
		if err == nil {
			err = os.WriteFile(setting, was, 0)
		}
		if err != nil {
			testlevel.Cannot(t, "root may not write the settings of this machine: run the tests outside of a container", err)
		}
		script := fmt.Sprintf("echo %s > %s", strings.TrimSpace(string(was)), setting) // what it is already
		if out, err := bare(t, 0, "/", script); err != nil {
			t.Errorf("mapped, the host's root cannot write a setting any more: %v\n%s", err, out)
		}
		uid, dir := harmless(t)
		if _, err := bare(t, uid, dir, script); err == nil {
			t.Error("another user writes settings of this machine")
		}
		x := newRig(t).open(t, Order{})
		if a := x.run(t, 0, "sh", "-c", script); a.Err == "" {
			t.Error("a sandbox writes settings of this machine")
		}
	})
}

// A script that goes on after a failed pivot_root writes to the host. Here the
// host is a folder. That ours does not go on is shown by
// TestNothingRunsWhenAStepFails.
func TestDamageOfGoingOnAfterAFailure(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		uid, dir := harmless(t)
		_, _ = bare(t, uid, dir, `
mkdir -p usr/bin
echo good > usr/bin/program
pivot_root new new/old
echo bad > ./usr/bin/program
`)
		if b, err := os.ReadFile(filepath.Join(dir, "usr/bin/program")); err != nil || string(b) != "bad\n" {
			t.Errorf("the file of the host is %q, %v; want it overwritten", b, err)
		}
	})
}

// Without a limit what is refused in TestStorageLimitHolds and
// TestProcessLimitHoldsAndIsOfOneSandbox succeeds; without a skeleton, where
// ids cannot be shifted, nobody can write below /usr.
func TestDamageWithoutLimitsAndSkeleton(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		r := newRig(t)
		x := r.open(t, Order{})
		x.sh(t, "head -c 33m /dev/zero > /tmp/big && rm /tmp/big")
		if a := x.run(t, 0, "sh", "-c", "for i in $(seq 100); do sleep 300 >/dev/null 2>&1 & done"); strings.Contains(a.Out, "fork") || a.Err != "" {
			t.Errorf("100 processes without a limit: %+v", a)
		}
		if mode == ids.RealRoot {
			return
		}
		const name = "/usr/share/doc/new" // not in a folder that may be a layer of its own
		x.sh(t, "touch "+name)
		r.host.value.skeleton = nil
		if a := r.open(t, Order{}).run(t, 0, "touch", name); a.Err == "" {
			t.Error("/usr can be written without a skeleton: is it still needed?")
		}
	})
}
