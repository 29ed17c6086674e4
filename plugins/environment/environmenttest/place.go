package environmenttest

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// inside returns a clause that runs a script in the common sandbox.
func inside(name, guards, script, want string) clause {
	return clause{Name: name, Guards: guards, Run: func(t *conformance.T, s Subject) { s.common(t).prints(want, script) }}
}

// placeClauses are about what a command finds in the sandbox.
var placeClauses = []clause{
	conformance.New("PID 1 is sandboxd, from the control folder", "an engine's init that takes the signals and the orphans", func(t *conformance.T, s Subject) {
		b := s.common(t)
		if got := b.sh("cat /proc/1/comm; cat /proc/1/cmdline | tr '\\0' ' '"); !strings.Contains(got, "sandboxd") {
			t.Errorf("PID 1 is %q", got)
		}
		program, err := os.ReadFile(s.kit.binary)
		t.Must("read sandboxd", err)
		if got, want := b.sh("sha256sum < /berth/sandboxd"), fmt.Sprintf("%x", sha256.Sum256(program)); !strings.HasPrefix(got, want) {
			t.Errorf("/berth/sandboxd is not the program of the control folder: its SHA-256 is %q, want %s", got, want)
		}
	}),
	conformance.New("the working folder exists and can be written", "a task whose first command fails", func(t *conformance.T, s Subject) {
		const dir = "/work/of the kit"
		b := s.Fresh(t, func(p *environment.Spec) { p.Workdir = dir })
		b.as("", dir, nil).prints(dir+"\nx", "pwd; echo x > here && cat here")
	}),
	inside("temporary folders are open to everybody", "programs of a second user that cannot make a file",
		"stat -c %a /tmp; echo x > /tmp/kit && cat /tmp/kit", "1777\nx"),
	inside("devices that every program expects are there", "a program that cannot open /dev/null or read /dev/urandom",
		"echo x > /dev/null && head -c 4 /dev/zero | wc -c | tr -d ' ' && head -c 4 /dev/urandom | wc -c | tr -d ' ' && "+
			"test -c /dev/tty && test -d /dev/pts && test -d /dev/shm && test -e /dev/fd && echo all", "4\n4\nall"),
	conformance.New("nothing of the host's environment is inside", "a provider's key in the variables of the sandbox", func(t *conformance.T, s Subject) {
		name := s.Variable
		if name == "" { // in this process
			name = "BERTH_KIT_CANARY"
			t.Must("set a variable", os.Setenv(name, "of the kit"))
			defer func() { _ = os.Unsetenv(name) }()
		}
		b := s.Fresh(t, nil)
		got, _ := b.as("", "", b.Image.Env).try("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'") // the core gives them to every command
		if strings.Contains(got, name) {
			t.Errorf("the plugin's variable %s is inside: %q", name, got)
		}
	}),
	conformance.New("a user of the spec can run commands", "a task that wants its agent to be another user than root", func(t *conformance.T, s Subject) {
		want := func(p *environment.Spec) { p.Users = []string{"1234"} }
		if report, err := s.Environment.Check(t.Context(), s.spec(t, want)); err != nil || len(report.Refusals) > 0 {
			return // an environment may refuse this
		}
		s.Fresh(t, want).as("1234", "", nil).prints("1234\n1234", "id -u; echo x > /tmp/mine; stat -c %u /tmp/mine")
	}),
	conformance.New("a mount of the spec is there and cannot be written", "an agent that changes the programs of all later agents", func(t *conformance.T, s Subject) {
		dir := filepath.Join(s.kit.folder, "mount")
		t.Write(dir, map[string]string{"file": "from the host"})
		t.Unchanged(dir, func() {
			b := s.Fresh(t, func(p *environment.Spec) {
				p.Mounts = append(slices.Clone(p.Mounts), environment.Mount{Source: dir, Target: "/opt/kit"})
			})
			b.prints("from the host", "cat /opt/kit/file")
			if out, r := b.try("echo changed > /opt/kit/file || rm -f /opt/kit/file || touch /opt/kit/new"); r.OK() {
				t.Errorf("wrote to it: %q", out)
			}
		})
	}),
	conformance.New("two sandboxes share nothing", "an agent that reads the solution of its neighbour", func(t *conformance.T, s Subject) {
		a, b := s.Fresh(t, nil), s.Fresh(t, nil)
		a.sh("for d in /tmp /var/tmp /dev/shm /run /etc /usr/bin; do echo secret-of-a > $d/kit-shared 2>/dev/null; done; (exec -a kit-shared sleep 100 2>/dev/null || sleep 100) >/dev/null 2>&1 & :")
		got, _ := b.try("find / -xdev -name kit-shared 2>/dev/null; cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -x 'kit-share[d]'; ls /dev/shm")
		if strings.Contains(got, "kit-shared") {
			t.Errorf("the neighbour finds %q", got)
		}
	}),
	conformance.New("the sandbox says which image it is made of", "a result that cannot be reproduced because the image is not known", func(t *conformance.T, s Subject) {
		if f := s.common(t).Image; f.Base == "" && f.Digest == "" {
			t.Errorf("neither base nor digest in %+v", f)
		}
	}),
}

// wallClauses are about what root of a sandbox cannot do.
var wallClauses = []clause{
	inside("nothing under /berth can be changed", "an agent that replaces sandboxd, or dials the core",
		"(echo x >> /berth/sandboxd) 2>/dev/null && echo wrote; rm -f /berth/sandboxd 2>/dev/null && echo removed; touch /berth/new 2>/dev/null && echo made; chmod 777 /berth 2>/dev/null && echo chmod; "+
			"mount -o remount,rw /berth 2>/dev/null && echo remounted; find /berth -type s 2>/dev/null; :", ""),
	inside("the settings of the kernel cannot be changed", "an agent that changes the machine of everybody",
		"for f in kernel/hostname kernel/core_pattern vm/overcommit_memory net/ipv4/ip_forward; do (cat /proc/sys/$f > /proc/sys/$f) 2>/dev/null && echo wrote $f; done; "+
			"(echo x > /proc/sysrq-trigger) 2>/dev/null && echo wrote sysrq; :", ""),
	conformance.New("root inside gets the capabilities of a container's root and no others",
		"an escape from the sandbox that has the rights of root on the machine", func(t *conformance.T, s Subject) {
			if got := s.common(t).Core.Hello.BoundingCapabilities &^ become.EngineCaps; got != 0 {
				t.Errorf("commands can gain capabilities %#x: start sandboxd with SETPCAP, or without these", got)
			}
		}),
	conformance.New("the host's processes cannot be seen", "keys in the arguments of the host's programs", func(t *conformance.T, s Subject) {
		const mark = "98765.4321"
		secret := exec.CommandContext(t.Context(), "sleep", mark)
		t.Must("start a process", secret.Start())
		defer func() { _ = secret.Process.Kill(); _ = secret.Wait() }()
		if out := s.common(t).sh("cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '"); strings.Contains(out, mark) {
			t.Errorf("a process of the host is visible: %q", out)
		}
	}),
	conformance.New("the host's files cannot be seen", "datasets, solutions and other runs within an agent's reach", func(t *conformance.T, s Subject) {
		b := s.common(t)
		b.prints("", "ls -d '"+t.TempDir()+"' '"+s.kit.folder+"' 2>/dev/null; ls /home /mnt /media /srv 2>/dev/null | grep -v : | grep . ; :")
	}),
	inside("no disk of the host can be opened", "an agent that reads the disk of the machine as a file",
		"find /dev -type b 2>/dev/null; for m in '8 0' '254 0' '253 0' '259 0'; do rm -f /tmp/kit-disk; "+
			"mknod /tmp/kit-disk b $m 2>/dev/null && head -c 1 /tmp/kit-disk >/dev/null 2>&1 && echo opened $m; done; rm -f /tmp/kit-disk; :", ""),
	conformance.New("without network there is only lo", "an agent that looks the solution up", func(t *conformance.T, s Subject) {
		s.common(t).prints("", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -v -e '^lo$' -e '^sit' -e '^tunl' -e '^ip6tnl'; :")
	}).Unless(func(s Subject) bool {
		return s.Spec.Network.Mode != "" && s.Spec.Network.Mode != environment.NetworkNone
	}, "the subject asks for a network"),
	conformance.New("the host's loopback is not the sandbox's", "an agent that talks to services of the host", func(t *conformance.T, s Subject) {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		t.Must("listen on the host", err)
		defer func() { _ = l.Close() }()
		port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
		if c, err := s.common(t).Core.Dial(t.Context(), port); err == nil {
			_ = c.Close()
			t.Errorf("reached port %d of the host from inside", port)
		}
	}),
}
