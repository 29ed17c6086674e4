package maker

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/inside"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/plugins/environment"
)

// checksum is over the names, modes, owners and contents below folders of the
// host, without what this user cannot read.
func checksum(t *testing.T, folders ...string) string {
	t.Helper()
	h := sha256.New()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrPermission) {
				return nil
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			fmt.Fprintln(h, path, info.Mode(), info.Size(), info.ModTime(), info.Sys() != nil)
			if !info.Mode().IsRegular() {
				return nil
			}
			sum, err := contents(path, info)
			if errors.Is(err, fs.ErrPermission) {
				return nil
			}
			fmt.Fprintln(h, sum)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// summed are the digests of files as they were when they were read. A file that
// has been written since has another time of change, which nobody can set: it
// is read again. Half a gigabyte, many times over, is minutes on a busy machine.
var summed sync.Map // of a string that names a state of a file

func contents(path string, info fs.FileInfo) (sum string, err error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", errors.New("no details of the file")
	}
	state := fmt.Sprint(path, st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)
	if known, ok := summed.Load(state); ok {
		sum, _ = known.(string)
		return sum, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err = io.Copy(h, f); err != nil {
		return "", err
	}
	sum = fmt.Sprintf("%x", h.Sum(nil))
	summed.Store(state, sum)
	return sum, nil
}

// mounts are those of this process's namespace that look like ours: others come
// and go on a machine with container engines.
func (r *rig) mounts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	ours := ""
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if strings.Contains(after, " berth ") || slices.Contains([]string{"/tmp", "/proc/sys"}, f[4]) || r.top != "" && strings.Contains(line, filepath.Base(r.top)) {
			ours += line
		}
	}
	return ours
}

// left fails when this process has children, mounts or records that it had not.
func (r *rig) left(t *testing.T, mountsBefore string) {
	t.Helper()
	if now := r.mounts(t); now != mountsBefore {
		t.Errorf("mounts changed:\n%s", now)
	}
	if all, err := filepath.Glob("/proc/self/task/*/children"); err == nil {
		for _, file := range all {
			text, _ := os.ReadFile(file) // none: the thread has ended
			if pids := strings.Fields(string(text)); len(pids) > 0 {
				t.Errorf("processes are left: %v", pids)
			}
		}
	}
	state, err := r.state()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{state.Boxes, state.Work} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			t.Errorf("in %s is left: %v %v", dir, entries, err)
		}
	}
}

// A shell version of the set-up that went on after a failed pivot_root, as
// real root, once wrote to the real /usr/bin.
func TestNothingRunsWhenAStepFails(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		folder, l := r.control(t)
		before, host := r.mounts(t), checksum(t, "/usr/bin", "/etc")
		for _, step := range inside.Steps() {
			_, err := r.Create(t.Context(), Order{Control: folder, Workdir: "/x", breakAt: step})
			if err == nil || !strings.Contains(err.Error(), step) {
				t.Errorf("step %q broken: got %v, want an error that names it", step, err)
			}
			_ = l.SetDeadline(time.Now().Add(20 * time.Millisecond))
			if c, err := l.Accept(); err == nil {
				t.Errorf("step %q broken: sandboxd ran all the same", step)
				_ = c.Close()
			}
			r.left(t, before)
		}
		if checksum(t, "/usr/bin", "/etc") != host {
			t.Error("the host's /usr/bin or /etc changed")
		}
		// And with the last guard gone: no sandboxd.
		if err := os.Remove(filepath.Join(folder, "sandboxd")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Create(t.Context(), Order{Control: folder}); err == nil {
			t.Error("created without sandboxd")
		}
		r.left(t, before)
	})
}

// local-init by itself must do nothing: not as root on the host, and not with
// a plan.
func TestInitDoesNothingOutside(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), modetest.Init())
	before := (&rig{}).mounts(t)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nothing when you start it") {
		t.Errorf("got %v, %q", err, out)
	}
	if (&rig{}).mounts(t) != before {
		t.Error("mounts changed")
	}
}

func TestAttackFromInsideLeavesTheHostAsItWas(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		x := newRig(t).open(t, Order{SizeMiB: 512})
		before := checksum(t, "/usr/bin", "/etc")
		x.run(t, 0, "sh", "-c", `
			cd /usr/bin && for f in *; do echo bad > "$f"; done
			rm -rf /usr/bin/a* /usr/sbin /etc/* /lib/x86_64-linux-gnu/libm.so.6
			mv /usr/share/doc /usr/share/moved
			chmod -R 777 /etc /usr/local; chown -R 1000 /usr/local
			for p in /proc/1/root /proc/self/root /..; do echo bad > $p/usr/bin/planted; done
			for p in ../../../../../../usr/bin/planted /proc/1/cwd/usr/bin/planted; do echo bad > $p; done
			mknod /tmp/d b 254 0; dd if=/dev/zero of=/tmp/d bs=1 count=1
			mount --bind / /mnt; echo bad > /mnt/usr/bin/planted
		`)
		if checksum(t, "/usr/bin", "/etc") != before {
			t.Error("the host's /usr/bin or /etc changed")
		}
		if _, err := os.Stat("/usr/bin/planted"); err == nil {
			t.Error("a file was planted in the host's /usr/bin")
		}
	})
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	modetest.In(t, modetest.MaskedProc, func(t *testing.T) {
		r := newRig(t)
		err := r.Probe(t.Context())
		if err == nil {
			t.Fatal("a sandbox was made")
		}
		for _, part := range []string{"no separate /proc", "masked", "run outside", "podman"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
		if !errors.Is(err, ErrForbidden) || errors.Is(err, environment.ErrNoCapacity) || strings.Contains(err.Error(), "\n") {
			t.Errorf("is not what an administrator forbade, in one line: %v", err)
		}
		entries, err := os.ReadDir(r.top)
		if err != nil || len(entries) != 1 { // the test's own sandboxd
			t.Errorf("left: %v, %v", entries, err)
		}
	})
}

// The host's root in a container: its /usr is an overlay, whose ids cannot be
// shifted.
func TestRootWhereIDsCannotBeShifted(t *testing.T) {
	modetest.In(t, modetest.OverlaidUsr, func(t *testing.T) {
		r := newRig(t)
		if err := r.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		x := r.open(t, Order{})
		if len(r.host.value.skeleton) == 0 {
			t.Error("no skeleton was made: this place is not what it should be")
		}
		x.sh(t, "touch /usr/bin/new /usr/share/doc/new && echo >> /etc/passwd && su -s /bin/sh nobody -c id | grep -q nobody")
		if got := x.sh(t, "stat -c '%U %u' /usr/bin/cat /usr/bin/new"); got != "nobody 65534\nroot 0\n" {
			t.Errorf("owners: %s", got)
		}
		if a := x.run(t, 0, "sh", "-c", "echo >> /usr/bin/ldd"); a.Err == "" {
			t.Error("a file of the host was changed in place")
		}
	})
}

// But for the folders that sandboxes will need, without a file in them.
func TestProbeLeavesNothing(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		before := r.mounts(t)
		for range 3 {
			if err := r.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		err := filepath.WalkDir(r.top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && d.Name() != "sandboxd" { // that is the test's own
				t.Errorf("left: %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		r.left(t, before)
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestManyInARowLeakNothing(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		folder, _ := r.control(t)
		const n = 20 // each of them would leave the same
		before := r.mounts(t)
		fds := 0
		for i := range n {
			b, err := r.Create(t.Context(), Order{Control: folder, Owner: "row"})
			if err != nil {
				t.Fatalf("sandbox %d: %v", i, err)
			}
			if _, err := r.Destroy(t.Context(), b.ID); err != nil {
				t.Fatalf("sandbox %d: %v", i, err)
			}
			if i == 0 {
				fds = descriptors(t)
			}
		}
		if now := descriptors(t); now > fds {
			t.Errorf("%d descriptors after %d sandboxes, %d after the first", now, n, fds)
		}
		r.left(t, before)
	})
}
