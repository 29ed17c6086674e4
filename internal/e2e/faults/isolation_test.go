package faults

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// users runs a test as this user and, if this is root, also as an ordinary
// user.
func users(t *testing.T, f func(p *place)) {
	t.Helper()
	uids := []int{os.Getuid()}
	if os.Getuid() == 0 {
		uids = append(uids, stranger)
	}
	for _, uid := range uids {
		t.Run("user "+strconv.Itoa(uid), func(t *testing.T) {
			t.Parallel()
			f(placeOf(t, uid))
		})
	}
}

// The sample that inspects its sandbox from inside passes, as root and as an
// ordinary user.
func TestTheIsolationSample(t *testing.T) {
	t.Parallel()
	users(t, func(p *place) {
		t := p.test
		e2etest.Must(t, os.CopyFS(filepath.Join(p.dir, "tasks", "isolation"), os.DirFS(filepath.Join(tree(), "examples", "quickstart", "tasks", "isolation"))))
		p.experiment("matrix {\n    agent = [agent.oracle, agent.nop]\n  }", "")
		p.berth("run", ".", "--no-live").want(t, 0)
		s := p.settled(p.run())
		if s.Summary.Outcomes[record.Passed] != 1 || s.Summary.Outcomes[record.Failed] != 1 {
			t.Errorf("outcomes %v, want the oracle to pass and nop to fail", s.Summary.Outcomes)
		}
		p.clean()
	})
}

// attack is what a hostile solution tries as root of its sandbox. Each line of
// its report is a name and an exit code.
const attack = `
set -u
mkdir -p /logs/artifacts
cd /logs/artifacts
try() { name=$1; shift; (eval "$@") > /dev/null 2>> errors; echo "$name $?" >> report; }
cat /proc/self/uid_map > uid_map
cat /proc/self/gid_map > gid_map
cat /proc/1/uid_map > uid_map_of_1
id -u > id
try sysctl 'cat /proc/sys/kernel/hostname > /tmp/name && cat /tmp/name > /proc/sys/kernel/hostname'
try sysrq 'echo h > /proc/sysrq-trigger'
try berth ': > /berth/probe'
try mknod 'mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem'
try mount_proc 'mount -o remount,rw /proc/sys && cat /proc/sys/kernel/hostname > /tmp/name && cat /tmp/name > /proc/sys/kernel/hostname'
try shadow 'cat /etc/shadow | grep -q :.[$*!]'
# These may succeed, on what only the sandbox sees.
for f in /usr/bin/env /usr/bin/sort /etc/passwd /etc/hosts; do cp $f /tmp/was; echo changed by an attack > $f; done
echo new > /usr/bin/berth-e2e-attack
echo new > /etc/berth-e2e-attack
rm -f /usr/bin/sort /etc/hosts
chmod 4777 /usr/bin/env
: > /app/done
`

// forbidden are the parts of attack that must fail in every sandbox.
var forbidden = []string{"sysctl", "sysrq", "berth", "mknod", "mount_proc", "shadow"}

// Root of a sandbox changes nothing on the host.
func TestAnAttackByRootInsideChangesNothingOutside(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		// First the damage: real root can do all that the attack tries.
		name, err := os.ReadFile("/proc/sys/kernel/hostname")
		if err == nil {
			err = os.WriteFile("/proc/sys/kernel/hostname", name, 0)
		}
		if err != nil {
			t.Logf("root may not write settings of this machine, so that one line of the attack proves nothing: %v", err)
		}
		if m := read("/proc/self/uid_map"); !mapsZero(m) {
			t.Logf("this test is in a user namespace itself: %s", m)
		}
	}
	users(t, func(p *place) {
		// Other programs of this machine may change a file in the same seconds,
		// but not the same file each time. An attack that works changes its
		// files each time.
		before := hostFiles(p.test)
		p.attack()
		changed := differences(before, hostFiles(p.test))
		for range 2 {
			if len(changed) == 0 {
				return
			}
			p.test.Logf("changed meanwhile: %q", changed)
			before = hostFiles(p.test)
			placeOf(p.test, p.uid).attack()
			again := differences(before, hostFiles(p.test))
			maps.DeleteFunc(changed, func(path, _ string) bool { return again[path] == "" })
		}
		for path, how := range changed {
			p.test.Errorf("%s of the host is not what it was: %s", path, how)
		}
	})
}

// attack runs the attack and checks its report.
func (p *place) attack() {
	t := p.test
	t.Helper()
	p.task("attack", "", attack, testTiny)
	p.experiment("matrix {\n    agent = [agent.oracle]\n  }", "")
	p.berth("run", ".", "--no-live").want(t, 0)
	s := p.settled(p.run())
	p.attacked(filepath.Join(s.Trials[0].Attempts[0].Dir, "artifacts", "logs", "artifacts"))
	p.clean()
}

// hostFiles are the files of the host that the attack tries to change.
func hostFiles(t *testing.T) map[string]string {
	t.Helper()
	all := sums(t, "/usr/bin")
	maps.Copy(all, sums(t, "/etc"))
	return all
}

// differences lists the paths at which two results of sums differ, and how.
func differences(was, is map[string]string) map[string]string {
	found := map[string]string{}
	for path, sum := range was {
		if is[path] != sum {
			found[path] = fmt.Sprintf("%s, now %q", sum, is[path])
		}
	}
	for path, sum := range is {
		if was[path] == "" {
			found[path] = "new: " + sum
		}
	}
	return found
}

func (p *place) attacked(report string) {
	t := p.test
	t.Helper()
	if id := strings.TrimSpace(read(filepath.Join(report, "id"))); id != "0" {
		t.Errorf("the attack ran as user %q of its sandbox, not as root: it proves nothing", id)
	}
	for _, m := range []string{"uid_map", "gid_map", "uid_map_of_1"} {
		if text := read(filepath.Join(report, m)); text == "" || mapsZero(text) {
			t.Errorf("%s maps the host's id 0: %q", m, text)
		}
	}
	text := read(filepath.Join(report, "report"))
	for _, name := range forbidden {
		code := ""
		for l := range strings.Lines(text) {
			if n, c, ok := strings.Cut(strings.TrimSpace(l), " "); ok && n == name {
				code = c
			}
		}
		if code == "" || code == "0" {
			t.Errorf("%s: exit code %q, want a failure\n%s", name, code, read(filepath.Join(report, "errors")))
		}
	}
}

// mapsZero says whether a uid_map has the parent's id 0 in it.
func mapsZero(m string) bool {
	for l := range strings.Lines(m) {
		if f := strings.Fields(l); len(f) == 3 && f[1] == "0" {
			return true
		}
	}
	return false
}

// sums returns modes, owners, sizes, times and inode numbers of all files below
// dir, and checksums of the small files that this user can read. Only the
// kernel sets the ctime, so it shows that a large file was written to even if
// everything else was restored.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a folder of somebody else
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // gone this moment
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no owner", path)
		}
		all[path] = fmt.Sprintf("%v %d:%d %d bytes, inode %d, changed %d.%09d", info.Mode(), st.Uid, st.Gid, info.Size(), st.Ino, st.Ctim.Sec, st.Ctim.Nsec)
		if !info.Mode().IsRegular() || info.Size() > 64<<10 {
			return nil
		}
		if b, readErr := os.ReadFile(path); readErr == nil {
			all[path] += fmt.Sprintf(", %x", sha256.Sum256(b))
		}
		return nil
	})
	e2etest.Must(t, err)
	return all
}

// A change of a file is found even if its other times and its size are
// restored.
func TestAHiddenChangeIsSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	e2etest.Must(t, os.WriteFile(path, []byte("good"), 0o600))
	info, err := os.Stat(path)
	was := sums(t, dir)
	if err == nil {
		err = errors.Join(os.WriteFile(path, []byte("evil"), 0o600), os.Chtimes(path, info.ModTime(), info.ModTime()), os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
	}
	e2etest.Must(t, err)
	found := differences(was, sums(t, dir))
	if found[path] == "" || found[filepath.Join(dir, "new")] == "" {
		t.Errorf("found %q", found)
	}
}
