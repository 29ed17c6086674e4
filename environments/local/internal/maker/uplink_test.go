package maker

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
