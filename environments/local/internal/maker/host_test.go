package maker

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/cgroup"
	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// outside is an address of this machine that is not its loopback.
func outside(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback's")
	return ""
}

// greeter serves on all addresses of this machine and returns its port.
func greeter(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, acceptErr := l.Accept()
			if acceptErr != nil {
				return
			}
			_, _ = c.Write([]byte("hello from outside\n"))
			_ = c.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestPublicNetworkReachesOutAndNotBack(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		name := r.Uplink()
		if name == "" {
			t.Skip("neither pasta nor slirp4netns is installed (apt-get install passt), or /dev/net/tun cannot be opened")
		}
		port := greeter(t)
		x := r.open(t, Order{Public: true})
		connect := func(to string) answer {
			return x.run(t, 0, "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/"+to+" && head -1 <&3")
		}
		// Under pasta the sandbox has the machine's own address: a connection to
		// it stays inside.
		if name == "slirp4netns" {
			if a := connect(outside(t) + "/" + port); a.Out != "hello from outside\n" {
				t.Errorf("%s: %+v", name, a)
			}
		}
		gateway := strings.TrimSpace(x.sh(t, "ip route 2>/dev/null | sed -n 's/default via \\([^ ]*\\).*/\\1/p'"))
		for _, host := range []string{"127.0.0.1", "10.0.2.2", gateway} {
			if a := connect(host + "/" + port); a.Err == "" {
				t.Errorf("the host is reached at %s: %+v", host, a)
			}
		}
		if a := connect("169.254.169.254/80"); !strings.Contains(a.Out, "No route to host") {
			t.Errorf("link-local addresses are not closed: %+v", a)
		}
		if a := x.run(t, 0, "sh", "-c", "ip route del unreachable 169.254.0.0/16 || route del -net 169.254.0.0/16 reject"); a.Err == "" {
			t.Errorf("a command can change routes: %+v", a)
		}
		if got := x.sh(t, "cat /etc/resolv.conf"); got != "nameserver 10.0.2.3\n" {
			t.Errorf("resolv.conf: %q", got)
		}
	})
}

// Where mounts are shared, as under systemd, root's program for the network must not
// unmount what the host has mounted: the file systems of other containers.
func TestThePublicNetworkLeavesTheMountsOfTheHost(t *testing.T) {
	testlevel.Root(t, "share a mount")
	r := newRig(t)
	if r.Uplink() == "" {
		t.Skip(testlevel.Missing("slirp4netns", "slirp4netns"))
	}
	shared := t.TempDir()
	below := filepath.Join(shared, "below")
	mounts := func(steps ...func() error) {
		for _, step := range steps {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mounts(
		func() error { return unix.Mount("none", shared, "tmpfs", 0, "") },
		func() error {
			t.Cleanup(func() { _ = unix.Unmount(shared, unix.MNT_DETACH) })
			return unix.Mount("", shared, "", unix.MS_SHARED, "")
		},
		func() error { return os.Mkdir(below, 0o755) },
		func() error { return unix.Mount("none", below, "tmpfs", 0, "") },
		func() error { return os.WriteFile(below+"/file", nil, 0o600) },
	)
	r.open(t, Order{Public: true})
	if _, err := os.Stat(below + "/file"); err != nil {
		t.Errorf("with a sandbox on the public network, a mount of the host is gone: %v", err)
	}
}

// groupsOfTest is a file system of control groups of version 2 where root may
// make some, with or without controllers.
func groupsOfTest(t *testing.T) *cgroup.Parent {
	t.Helper()
	for _, at := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(at, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC && unix.Access(at, unix.W_OK) == nil {
			return cgroup.At(at)
		}
	}
	t.Skip("needs control groups of version 2, writable")
	return nil
}

func TestSandboxIsInAControlGroupOfItsOwn(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		if mode != ids.RealRoot {
			t.Skip("needs root, or a delegated group, which tests cannot make for a user")
		}
		r := newRig(t)
		r.groups = groupsOfTest(t)
		x := r.open(t, Order{Limits: cgroup.Limits{Pids: 100, MemoryMiB: 64}})
		rec, err := r.read(x.ID)
		if err != nil || !strings.HasSuffix(rec.Group, "/berth-"+x.ID) {
			t.Fatalf("record: %+v, %v", rec, err)
		}
		if text, readErr := os.ReadFile(filepath.Join(rec.Group, "cgroup.procs")); readErr != nil || len(strings.Fields(string(text))) == 0 {
			t.Errorf("nothing is in its group: %q, %v", text, readErr)
		}
		if got := x.sh(t, "grep ^0:: /proc/self/cgroup"); got != "0::/\n" {
			t.Errorf("inside it is in %q", got)
		}
		u, err := r.Destroy(t.Context(), x.ID)
		if err != nil || u.CPU <= 0 {
			t.Errorf("destroy: %+v, %v", u, err)
		}
		if _, err := os.Stat(rec.Group); err == nil {
			t.Error("its group is left")
		}
	})
}

const (
	spaceFolder  = "/usr/src/with space, comma"
	nestedFolder = spaceFolder + "/nested:1"
)

// A mount below /usr, such as an NFS /usr/local, once made the kernel refuse the
// layers of every ordinary user.
func TestMountsBelowUsr(t *testing.T) {
	modetest.EachIn(t, modetest.MountedUsr, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		if err := r.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		x := r.open(t, Order{})
		for _, tool := range []string{"/usr/src", spaceFolder, spaceFolder + "/beside", nestedFolder} {
			if got := x.sh(t, "'"+tool+"/tool'"); got != tool+"/tool\n" {
				t.Errorf("%s/tool printed %q", tool, got)
			}
		}
		if got := x.sh(t, "cat /usr/src/under"); !strings.Contains(got, "/usr/src/tool") {
			t.Errorf("a file on which another is mounted holds %q", got)
		}
		if got := x.sh(t, `cd /usr && find src bin/../src \( -name secret -o -name npmrc -o -name pip.conf \)`); got != "" {
			t.Errorf("what not everybody may read is there:\n%s", got)
		}
		writesNothingOnTheHost(t, x)
	})
}

// writesNothingOnTheHost checks that everything can be written in x, and that none of it
// arrives on the host.
func writesNothingOnTheHost(t *testing.T, x *live) {
	t.Helper()
	x.sh(t, `for d in /usr /usr/src "`+spaceFolder+`" "`+spaceFolder+`/beside" "`+nestedFolder+`" /usr/bin /usr/share; do
			echo x > "$d/berth-new" && mkdir "$d/berth-folder" && mv "$d/berth-new" "$d/berth-folder/" || exit 1
		done
		for d in /usr/src "`+spaceFolder+`" "`+nestedFolder+`"; do rm "$d/tool" && echo mine > "$d/tool" || exit 1; done`)
	for _, dir := range []string{"/usr", "/usr/src", spaceFolder, spaceFolder + "/beside", nestedFolder, "/usr/bin", "/usr/share"} {
		if _, err := os.Stat(filepath.Join(dir, "berth-folder")); err == nil {
			t.Errorf("a folder was made in %s of the host", dir)
		}
	}
	if text, err := os.ReadFile(nestedFolder + "/tool"); err != nil || string(text) == "mine\n" {
		t.Errorf("the host's file holds %q (%v)", text, err)
	}
}

func TestMountsAreFound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	const text = `22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:1 / /usr/with\040space\134 rw - tmpfs t rw
31 30 0:2 / /usr/with\040space\134/"n" rw - nfs t rw
32 22 0:3 / /usrx rw - tmpfs t rw
33 22 0:4 / /usr rw - tmpfs t rw
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	points, err := mountPoints(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := within("/usr", points); !slices.Equal(got, []string{`with space\`, `with space\/"n"`}) {
		t.Errorf("below /usr: %q", got)
	}
}

func TestFolderIsDividedAtItsMounts(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"bin", "local/bin", "local/go/src", "local/closed", "lib/a"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(top, "local/closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ points, above, whole []string }{
		{nil, nil, nil},
		{[]string{"local/go"}, []string{".", "local"}, []string{"bin", "lib", "local/bin", "local/go"}},
		{[]string{"lib/libc.so"}, []string{".", "lib"}, []string{"bin", "lib/a", "local"}},
		{[]string{"bin", "bin/nested"}, []string{".", "bin"}, []string{"lib", "local"}},
		{[]string{"local/closed/deep/mount"}, []string{".", "local"}, []string{"bin", "lib", "local/bin", "local/go"}},
		{[]string{"gone/x"}, []string{"."}, []string{"bin", "lib", "local"}},
	} {
		if d := divide(top, tt.points); !slices.Equal(d.above, tt.above) || !slices.Equal(d.whole, tt.whole) {
			t.Errorf("with mounts at %q: above %q, whole %q", tt.points, d.above, d.whole)
		}
	}
}
