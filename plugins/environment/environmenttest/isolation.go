package environmenttest

import (
	"net"
	"os/exec"
	"strings"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/become"
)

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
