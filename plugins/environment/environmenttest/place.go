package environmenttest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
)

// placeClauses are about what a command finds in the sandbox.
var placeClauses = []conformance.Clause[Subject]{
	{
		Name:   "PID 1 is sandboxd, from the control folder",
		Guards: "an engine's init that takes the signals and the orphans",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.common(ctx, t)
			if got := sh(ctx, t, b.shell(ctx, t), "cat /proc/1/comm; cat /proc/1/cmdline | tr '\\0' ' '"); !strings.Contains(got, "sandboxd") {
				t.Errorf("PID 1 is %q", got)
			}
			program, err := os.ReadFile(s.kit.binary)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if got, want := sh(ctx, t, b.shell(ctx, t), "sha256sum < /berth/sandboxd"), fmt.Sprintf("%x", sha256.Sum256(program)); !strings.HasPrefix(got, want) {
				t.Errorf("/berth/sandboxd is not the program of the control folder: its SHA-256 is %q, want %s", got, want)
			}
		},
	},
	{
		Name:   "the working folder exists and can be written",
		Guards: "a task whose first command fails",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, func(p *environment.Spec) { p.Workdir = "/work/of the kit" })
			got := sh(ctx, t, b.shellAs(ctx, t, "", "/work/of the kit", nil), "pwd; echo x > here && cat here")
			if got != "/work/of the kit\nx" {
				t.Errorf("printed %q", got)
			}
		},
	},
	{
		Name:   "temporary folders are open to everybody",
		Guards: "programs of a second user that cannot make a file",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			if got := sh(ctx, t, s.common(ctx, t).shell(ctx, t), "stat -c %a /tmp; echo x > /tmp/kit && cat /tmp/kit"); got != "1777\nx" {
				t.Errorf("printed %q", got)
			}
		},
	},
	{
		Name:   "devices that every program expects are there",
		Guards: "a program that cannot open /dev/null or read /dev/urandom",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			got := sh(ctx, t, s.common(ctx, t).shell(ctx, t),
				"echo x > /dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c && test -c /dev/tty && test -d /dev/pts && test -d /dev/shm && test -e /dev/fd && echo all")
			if strings.Join(strings.Fields(got), " ") != "4 4 all" {
				t.Errorf("printed %q", got)
			}
		},
	},
	{
		Name:   "nothing of the host's environment is inside",
		Guards: "a provider's key in the variables of the sandbox",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			name := s.Variable
			if name == "" { // in this process
				name = "BERTH_KIT_CANARY"
				if err := os.Setenv(name, "of the kit"); err != nil {
					t.Fatalf("%v", err)
				}
				defer func() { _ = os.Unsetenv(name) }()
			}
			b := s.fresh(ctx, t, nil)
			var env []string
			for k, v := range b.Image.Env { // which the core gives to every command
				env = append(env, k+"="+v)
			}
			got, _ := try(ctx, t, b.shellAs(ctx, t, "", "", env), "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
			if strings.Contains(got, name) {
				t.Errorf("the plugin's variable %s is inside: %q", name, got)
			}
		},
	},
	{
		Name:   "a user of the spec can run commands",
		Guards: "a task that wants its agent to be another user than root",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			want := func(p *environment.Spec) { p.Users = []string{"1234"} }
			spec, folder, err := s.spec(want)
			if err != nil {
				t.Fatalf("%v", err)
			}
			_ = folder.Close()
			if report, err := s.Environment.Check(ctx, spec); err != nil || len(report.Refusals) > 0 {
				t.Logf("check refuses: %+v, %v", report.Refusals, err)
				return // an environment may refuse this
			}
			b := s.fresh(ctx, t, want)
			if got := sh(ctx, t, b.shellAs(ctx, t, "1234", "", nil), "id -u; echo x > /tmp/mine; stat -c %u /tmp/mine"); got != "1234\n1234" {
				t.Errorf("printed %q", got)
			}
		},
	},
	{
		Name:   "a mount of the spec is there and cannot be written",
		Guards: "an agent that changes the programs of all later agents",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			dir := filepath.Join(s.kit.folder, "mount")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatalf("%v", err)
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the host"), 0o644); err != nil {
				t.Fatalf("%v", err)
			}
			b := s.fresh(ctx, t, func(p *environment.Spec) {
				p.Mounts = append(slices.Clone(p.Mounts), environment.Mount{Source: dir, Target: "/opt/kit"})
			})
			c := b.shell(ctx, t)
			if got := sh(ctx, t, c, "cat /opt/kit/file"); got != "from the host" {
				t.Errorf("read %q", got)
			}
			if out, r := try(ctx, t, c, "echo changed > /opt/kit/file || rm -f /opt/kit/file || touch /opt/kit/new"); r.OK() {
				t.Errorf("wrote to it: %q", out)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(got) != "from the host" {
				t.Errorf("on the host: %q, %v", got, err)
			}
		},
	},
	{
		Name:   "two sandboxes share nothing",
		Guards: "an agent that reads the solution of its neighbour",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			a, b := s.fresh(ctx, t, nil), s.fresh(ctx, t, nil)
			sh(ctx, t, a.shell(ctx, t), "for d in /tmp /var/tmp /dev/shm /run /etc /usr/bin; do echo secret-of-a > $d/kit-shared 2>/dev/null; done; (exec -a kit-shared sleep 100 2>/dev/null || sleep 100) >/dev/null 2>&1 & :")
			got, _ := try(ctx, t, b.shell(ctx, t), "find / -xdev -name kit-shared 2>/dev/null; cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -x 'kit-share[d]'; ls /dev/shm")
			if strings.Contains(got, "kit-shared") {
				t.Errorf("the neighbour finds %q", got)
			}
		},
	},
	{
		Name:   "the sandbox says which image it is made of",
		Guards: "a result that cannot be reproduced because the image is not known",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			if f := s.common(ctx, t).Image; f.Base == "" && f.Digest == "" {
				t.Errorf("neither base nor digest in %+v", f)
			}
		},
	},
}
