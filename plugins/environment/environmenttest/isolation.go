package environmenttest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// wallClauses are about what root of a sandbox cannot do.
var wallClauses = []conformance.Clause[Subject]{
	{
		Name:   "nothing under /berth can be changed",
		Guards: "an agent that replaces sandboxd, or dials the core",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			out, _ := try(ctx, t, s.common(ctx, t).shell(ctx, t),
				"(echo x >> /berth/sandboxd) 2>/dev/null && echo wrote; rm -f /berth/sandboxd 2>/dev/null && echo removed; touch /berth/new 2>/dev/null && echo made; chmod 777 /berth 2>/dev/null && echo chmod; mount -o remount,rw /berth 2>/dev/null && echo remounted; find /berth -type s 2>/dev/null; :")
			if out != "" {
				t.Errorf("printed %q", out)
			}
		},
	},
	{
		Name:   "the settings of the kernel cannot be changed",
		Guards: "an agent that changes the machine of everybody",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			out, _ := try(ctx, t, s.common(ctx, t).shell(ctx, t),
				"for f in kernel/hostname kernel/core_pattern vm/overcommit_memory net/ipv4/ip_forward; do (cat /proc/sys/$f > /proc/sys/$f) 2>/dev/null && echo wrote $f; done; (echo x > /proc/sysrq-trigger) 2>/dev/null && echo wrote sysrq; :")
			if out != "" {
				t.Errorf("printed %q", out)
			}
		},
	},
	{
		Name:   "root inside gets the capabilities of a container's root and no others",
		Guards: "an escape from the sandbox that has the rights of root on the machine",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			if got := s.common(ctx, t).core.Hello.BoundingCapabilities &^ become.EngineCaps; got != 0 {
				t.Errorf("commands can gain capabilities %#x: start sandboxd with SETPCAP, or without these", got)
			}
		},
	},
	{
		Name:   "the host's processes cannot be seen",
		Guards: "keys in the arguments of the host's programs",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			const mark = "98765.4321"
			secret := exec.CommandContext(ctx, "sleep", mark)
			if err := secret.Start(); err != nil {
				t.Fatalf("%v", err)
			}
			defer func() { _ = secret.Process.Kill(); _ = secret.Wait() }()
			out := sh(ctx, t, s.common(ctx, t).shell(ctx, t), "cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '")
			if strings.Contains(out, mark) {
				t.Errorf("a process of the host is visible: %q", out)
			}
		},
	},
	{
		Name:   "the host's files cannot be seen",
		Guards: "datasets, solutions and other runs within an agent's reach",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "kit-secret-file"), []byte("secret"), 0o644); err != nil {
				t.Fatalf("%v", err)
			}
			c := s.common(ctx, t).shell(ctx, t)
			for _, path := range []string{dir, s.kit.folder} {
				if out, r := try(ctx, t, c, "ls -d '"+path+"' 2>/dev/null"); r.OK() {
					t.Errorf("sees %q", out)
				}
			}
			if out := sh(ctx, t, c, "ls /home /mnt /media /srv 2>/dev/null | grep -v : | grep . ; :"); out != "" {
				t.Errorf("folders of people hold %q", out)
			}
		},
	},
	{
		Name:   "no disk of the host can be opened",
		Guards: "an agent that reads the disk of the machine as a file",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			out, _ := try(ctx, t, s.common(ctx, t).shell(ctx, t),
				"find /dev -type b 2>/dev/null; for m in '8 0' '254 0' '253 0' '259 0'; do rm -f /tmp/kit-disk; mknod /tmp/kit-disk b $m 2>/dev/null && head -c 1 /tmp/kit-disk >/dev/null 2>&1 && echo opened $m; done; rm -f /tmp/kit-disk; :")
			if out != "" {
				t.Errorf("printed %q", out)
			}
		},
	},
	{
		Name:   "without network there is only lo",
		Guards: "an agent that looks the solution up",
		Skip: func(s Subject) string {
			if m := s.Spec.Network.Mode; m != "" && m != environment.NetworkNone {
				return "the subject asks for a network"
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			got := sh(ctx, t, s.common(ctx, t).shell(ctx, t), "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '")
			for name := range strings.FieldsSeq(got) {
				if name != "lo" && !strings.HasPrefix(name, "sit") && !strings.HasPrefix(name, "tunl") && !strings.HasPrefix(name, "ip6tnl") {
					t.Errorf("interfaces: %s", got)
				}
			}
		},
	},
	{
		Name:   "the host's loopback is not the sandbox's",
		Guards: "an agent that talks to services of the host",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatalf("%v", err)
			}
			defer func() { _ = l.Close() }()
			_, port, err := net.SplitHostPort(l.Addr().String())
			if err != nil {
				t.Fatalf("%v", err)
			}
			n, err := strconv.Atoi(port)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if c, err := s.common(ctx, t).core.Dial(ctx, n); err == nil {
				_ = c.Close()
				t.Errorf("reached port %d of the host from inside", n)
			}
		},
	},
}
