package maker

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
)

func TestSandboxSeesNothingOfTheHostButItsPrograms(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		x := r.open(t, Order{})
		for line := range strings.Lines(x.sh(t, "cat /proc/self/uid_map /proc/self/gid_map")) {
			if f := strings.Fields(line); len(f) != 3 || f[1] == "0" {
				t.Errorf("an id map has the line %q: the host's id 0 must not be in it", line)
			}
		}
		top := strings.Fields(x.sh(t, "ls -A /"))
		want := []string{
			"app", "berth", "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "logs", "media", "mnt", "opt", "proc", "root", "run",
			"sbin", "solution", "srv", "tests", "tmp", "usr", "var",
		}
		for _, name := range top {
			if !slices.Contains(want, name) {
				t.Errorf("/%s is visible", name)
			}
		}
		if got := x.sh(t, "ls -A /home /root /opt /srv /mnt /app /tests /solution /tmp"); strings.Trim(got, "/homertpsvnalui:\n") != "" {
			t.Errorf("folders that must be empty hold something:\n%s", got)
		}
		x.sh(t, "test -x /berth/sandboxd")
		if got := x.sh(t, "ls -d /etc/ssh /etc/ssl/private /etc/sudoers /etc/machine-id /etc/shadow 2>/dev/null; cat /etc/machine-id; sed s/^[^:]*// /etc/shadow | sort -u; cat /etc/hostname"); got !=
			"/etc/machine-id\n/etc/shadow\n:*:19000:0:99999:7:::\nberth\n" {
			t.Errorf("of /etc there is\n%s", got)
		}
		if got := x.sh(t, "hostname; cat /proc/self/cgroup; ls /proc | grep -c '^[0-9]'"); !strings.HasPrefix(got, "berth\n") {
			t.Errorf("host name and processes: %s", got)
		}
	})
}

// A sandbox's root owns the host's programs. What not everybody may read of them
// is not there.
func TestSandboxSeesNothingThatOnlyRootMayRead(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		x := newRig(t).open(t, Order{})
		got := x.sh(t, `find /usr /etc ! -type l \( -type f ! -perm -o=r -o -type d ! -perm -o=rx -o -name npmrc -o -name pip.conf -o -name gitconfig \) ! -path /etc/shadow`)
		if got != "" {
			t.Errorf("there is\n%s", got)
		}
		x.sh(t, "test -x /usr/bin/env && ls /usr/share /usr/local >/dev/null")
	})
}

func TestMountsOfTheHostAndStateDoNotShow(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		x := r.open(t, Order{})
		points := regexp.MustCompile(`^/(|usr|usr/.*|bin|sbin|lib.*|etc|proc|proc/sys|berth|dev/(null|zero|full|random|urandom|tty|pts))$`)
		for line := range strings.Lines(x.sh(t, "cat /proc/self/mountinfo")) {
			f := strings.Fields(line)
			if !points.MatchString(f[4]) {
				t.Errorf("a mount of the host is visible: %s", line)
			}
			if f[4] != "/berth" && strings.Contains(line, filepath.Base(r.top)) || strings.Contains(line, "skeleton") {
				t.Errorf("the plugin's state shows: %s", line)
			}
		}
	})
}

func TestSandboxKeepsItsOwnSettingsFromItsRoot(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		x := newRig(t).open(t, Order{})
		for _, script := range []string{
			"echo 1 > /proc/sys/kernel/panic",
			"echo 1 > /proc/sys/net/ipv4/ip_forward",
			"echo 1 > /proc/sysrq-trigger",
			"umount /proc/sys",
			"mount -o remount,rw /proc/sys",
			"mount -t tmpfs none /mnt",
			"mount -t proc proc /mnt",
			"mount -o remount,rw /berth",
			"rm -f /berth/sandboxd",
			"touch /berth/new",
			"unshare -U true",
			"unshare -m true",
			"mknod /tmp/disk b 254 0 && head -c1 /tmp/disk",
			"hostname other",
			"cat /proc/1/environ",
			"head -c1 /proc/1/root/etc/passwd",
		} {
			if mode == ids.OneID && strings.Contains(script, "/proc/1/") {
				continue // PID 1 is of the same user; what holds there is done by sandboxd, which this is not
			}
			if a := x.run(t, 0, "sh", "-c", script); a.Err == "" {
				t.Errorf("succeeded: %s\n%s", script, a.Out)
			}
		}
	})
}

// What an engine's default profile refuses is refused here.
func TestSystemCallsAreFiltered(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		x := newRig(t).open(t, Order{})
		if got := x.sh(t, "grep Seccomp: /proc/self/status"); strings.Fields(got)[1] != "2" {
			t.Errorf("status: %s", got)
		}
		if a := x.run(t, 0, "/usr/bin/python3", "-c", "import socket; socket.socket(40, 1)"); strings.Contains(a.Err, "no such file") {
			t.Log("left out: this machine has no python3")
		} else if !strings.Contains(a.Out, "not supported") {
			t.Errorf("a socket to the hypervisor: %+v", a)
		}
	})
}

// What the host's own programs can do in each mode: the tables of the design.
func TestModesDifferAsDocumented(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		x := newRig(t).open(t, Order{})
		x.sh(t, "touch /usr/bin/new /usr/lib/new /usr/share/doc/new && mkdir /usr/share/doc/folder && rm /usr/bin/env")
		x.sh(t, "echo 'x:x:1:1::/:/bin/sh' >> /etc/passwd && sed -i s/^x:/y:/ /etc/passwd")
		inPlace := x.run(t, 0, "sh", "-c", "echo >> /usr/bin/ldd")
		owner := strings.TrimSpace(x.sh(t, "stat -c %U /usr/bin/cat"))
		if mode == ids.RealRoot {
			if inPlace.Err != "" || owner != "root" {
				t.Errorf("write in place: %v; owner %q, want root", inPlace, owner)
			}
		} else if inPlace.Err == "" || owner != "nobody" {
			t.Errorf("write in place: %v; owner %q, want nobody", inPlace, owner)
		}
		x.sh(t, "cp /usr/bin/ldd /tmp/l && cat /tmp/l > /usr/bin/ldd.new && mv /usr/bin/ldd.new /usr/bin/ldd")
		if !mode.Many() {
			return
		}
		if a := x.run(t, 1000, "sh", "-c", "id -u; touch /tmp/mine; touch /app/not"); !strings.HasPrefix(a.Out, "1000\n") || a.Err == "" {
			t.Errorf("as user 1000: %+v", a)
		}
		x.sh(t, "cp /usr/bin/id /app/id && chmod u+s /app/id")
		if a := x.run(t, 1000, "/app/id", "-u"); a.Out != "0\n" {
			t.Errorf("a setuid program made inside: %+v, want effective user 0", a)
		}
		x.sh(t, "mv /usr/share/doc /usr/share/moved && test -d /usr/share/moved") // by copying
		// The host's own setuid programs: passwd reads /etc/shadow for a user.
		x.sh(t, "useradd -u 4321 -M somebody && chmod 600 /etc/shadow")
		if a := x.run(t, 4321, "passwd", "-S"); (a.Err == "" && len(strings.Fields(a.Out)) > 2) != (mode == ids.RealRoot) {
			t.Errorf("a setuid program of the host in mode %v: %+v", mode, a)
		}
		x.sh(t, "chown 1000:1000 /app && su -s /bin/sh nobody -c id | grep -q nobody")
	})
}

func TestProgramsOfTheHostWork(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		x := newRig(t).open(t, Order{})
		for _, c := range []struct{ program, script string }{
			{"/usr/bin/python3", `/usr/bin/python3 -c "import ssl, sqlite3, subprocess; sqlite3.connect('/tmp/d'); print(subprocess.check_output(['echo', 'hi']))" | grep -q hi`},
			{"/usr/bin/git", `cd /app && git init -q . && touch f && git add f && git -c user.name=a -c user.email=a@b commit -qm x && git log --oneline | grep -q x`},
			{"/usr/bin/dpkg-deb", `
				mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin /tmp/p/usr/share/doc/berthtest && cd /tmp
				printf 'Package: berthtest\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: test\n' > p/DEBIAN/control
				printf '#!/bin/sh\necho installed\n' > p/usr/bin/berthtest; chmod 755 p/usr/bin/berthtest; echo doc > p/usr/share/doc/berthtest/doc
				dpkg-deb --root-owner-group -b p p.deb >/dev/null && dpkg --force-not-root -i p.deb >/dev/null && berthtest | grep -q installed`},
			{"/usr/sbin/useradd", "useradd -u 1234 -M somebody && grep -q '^somebody:' /etc/passwd"},
			{"/usr/bin/tmux", "tmux new-session -d 'sleep 60' && tmux list-sessions | grep -q '^0:' && tmux kill-server"},
		} {
			if _, err := os.Stat(c.program); err != nil {
				t.Logf("left out: this machine has no %s", c.program)
				continue
			}
			if a := x.run(t, 0, "sh", "-c", c.script); a.Err != "" {
				t.Errorf("%s in mode %v: %s%s", c.program, mode, a.Out, a.Err)
			}
		}
	})
}

func TestStorageLimitHolds(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		x := newRig(t).open(t, Order{SizeMiB: 32, ShmMiB: 4})
		for _, c := range []struct {
			path string
			mib  int
		}{{"/tmp/big", 32}, {"/usr/lib/big", 32}, {"/etc/big", 32}, {"/dev/shm/big", 4}} {
			a := x.run(t, 0, "sh", "-c", fmt.Sprintf("head -c %dm /dev/zero > %s; stat -c %%s %s; rm %s", c.mib+1, c.path, c.path, c.path))
			var size int64
			last := strings.Fields(a.Out)
			if len(last) > 0 {
				_, _ = fmt.Sscan(last[len(last)-1], &size)
			}
			if !strings.Contains(a.Out, "No space left") || size == 0 || size > int64(c.mib)<<20 {
				t.Errorf("%s: wrote %d bytes of %d MiB and one more: %s", c.path, size, c.mib, a.Out)
			}
		}
	})
}

func TestProcessLimitHoldsAndIsOfOneSandbox(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		testlevel.Program(t, "dash", "dash") // other shells try to fork again for a minute
		r := newRig(t)
		x, y := r.open(t, Order{Nproc: 64}), r.open(t, Order{Nproc: 64})
		a := x.run(t, 0, "dash", "-c", "for i in $(seq 100); do sleep 300 >/dev/null 2>&1 & done")
		if !strings.Contains(a.Out, "Cannot fork") {
			t.Errorf("100 processes with a limit of 64: %.200s", a.Out)
		}
		y.sh(t, "true | true | true") // its neighbor has its own 64
	})
}

// archive is a file with these entries; one of five bytes holds "hello".
func archive(t *testing.T, dir string, entries []*tar.Header) *os.File {
	t.Helper()
	f, err := os.CreateTemp(dir, "tar")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	w := tar.NewWriter(f)
	for _, h := range entries {
		err := w.WriteHeader(h)
		if h.Size > 0 && err == nil {
			_, err = w.Write([]byte("hello"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFilesMountsAndWorkdirAreInPlace(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		r := newRig(t)
		mount := filepath.Join(r.top, "bundle")
		if err := os.Mkdir(mount, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mount, "tool"), []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		owner := 0
		if mode.Many() {
			owner = 1000
		}
		f := archive(t, r.top, []*tar.Header{
			{Typeflag: tar.TypeDir, Name: r.top, Mode: 0o755},
			{Typeflag: tar.TypeDir, Name: "/app/d", Mode: 0o750},
			{Typeflag: tar.TypeReg, Name: "/app/d/f", Mode: 0o640, Size: 5, Uid: owner, Gid: owner},
			{Typeflag: tar.TypeSymlink, Name: "/app/out", Linkname: r.top},
			{Typeflag: tar.TypeReg, Name: "/app/out/through", Mode: 0o644, Size: 5}, // through a link that leads to the host's own path
			{Typeflag: tar.TypeReg, Name: "/usr/local/bin/deep/program", Mode: 0o4755, Size: 5},
			{Typeflag: tar.TypeLink, Name: "/app/hard", Linkname: "/app/d/f"},
			{Typeflag: tar.TypeReg, Name: "../../../etc/up", Mode: 0o644, Size: 5},
		})
		for range 2 { // the second reads the same descriptor from its start
			x := r.open(t, Order{Files: f, Workdir: "/work/deep", Mounts: []environment.Mount{{Source: mount, Target: "/opt/bundle"}, {Source: mount, Target: "/usr/lib/berth/x"}}})
			got := x.sh(t, "stat -c '%a %u %n' /app/d /app/d/f /app/hard /usr/local/bin/deep/program /etc/up /work/deep; cat /app/d/f; /opt/bundle/tool; /usr/lib/berth/x/tool")
			want := fmt.Sprintf("750 0 /app/d\n640 %d /app/d/f\n640 %d /app/hard\n4755 0 /usr/local/bin/deep/program\n644 0 /etc/up\n755 0 /work/deep\nhellotool\ntool\n", owner, owner)
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			if a := x.run(t, 0, "sh", "-c", "touch /opt/bundle/new"); a.Err == "" {
				t.Error("a mount can be written")
			}
			if got := x.sh(t, "ls -A / | grep -i berth-mounts || true"); got != "" {
				t.Errorf("left at the root: %s", got)
			}
			x.sh(t, "test -e "+r.top+"/through") // it landed inside, below the sandbox's own root
		}
		if _, err := os.Stat(filepath.Join(r.top, "through")); err == nil {
			t.Error("a file of the archive was written to the host")
		}
	})
}
