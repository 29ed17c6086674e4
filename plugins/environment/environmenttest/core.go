package environmenttest

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// coreClauses are about what the core needs of every sandbox.
var coreClauses = []conformance.Clause[Subject]{
	{
		Name:   "freeze stops everything, and thaw lets it continue",
		Guards: "an agent that works while its copies are judged",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.borrowed(ctx, t)
			c := b.shell(ctx, t)
			sh(ctx, t, c, "(while :; do echo x >> /tmp/beat; sleep 0.01; done) >/dev/null 2>&1 & :")
			eventually(ctx, t, "a beat", func() bool { return beats(ctx, b) > 0 })
			if _, err := b.core.Freeze(ctx); err != nil {
				t.Fatalf("freeze: %v", err)
			}
			frozen := beats(ctx, b)
			time.Sleep(150 * time.Millisecond)
			if now := beats(ctx, b); now != frozen {
				t.Errorf("%d beats while frozen", now-frozen)
			}
			if err := b.core.Thaw(ctx); err != nil {
				t.Fatalf("thaw: %v", err)
			}
			eventually(ctx, t, "a beat after thaw", func() bool { return beats(ctx, b) > frozen })
		},
	},
	{
		Name:   "quiesce kills everything, and commands work afterwards",
		Guards: "a daemon of the agent that changes what is graded",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.borrowed(ctx, t)
			sh(ctx, t, b.shell(ctx, t), "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' >/dev/null 2>&1 & done; :")
			killed, err := b.core.Quiesce(ctx)
			if err != nil || len(killed) < 3 {
				t.Errorf("killed %d, %v; want at least 3", len(killed), err)
			}
			ps, err := b.core.Processes(ctx)
			if err != nil {
				t.Fatalf("processes: %v", err)
			}
			for _, p := range ps.List {
				t.Errorf("process %d %q is left", p.PID, p.Argv)
			}
			if got := sh(ctx, t, b.shell(ctx, t), "echo on"); got != "on" {
				t.Errorf("afterwards: %q", got)
			}
		},
	},
	{
		Name:   "a folder can be replaced, whatever the agent put there",
		Guards: "tests that run beside files which the agent planted",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, nil)
			c := b.shell(ctx, t)
			sh(ctx, t, c, "rm -rf /tests /logs; mkdir -p /tests /elsewhere && echo planted > /tests/conftest.py && ln -s /elsewhere /logs")
			moved, err := b.core.Fresh(ctx, "", 0, "/tests", "/logs/verifier")
			if err != nil || len(moved) == 0 {
				t.Fatalf("fresh: %+v, %v; want what was moved aside", moved, err)
			}
			if got := sh(ctx, t, c, "ls -A /tests /logs/verifier /elsewhere | grep -v : | grep . ; test -L /logs && echo link; :"); got != "" {
				t.Errorf("afterwards: %q", got)
			}
		},
	},
	{
		Name:   "a port inside reaches the core",
		Guards: "an agent without network that cannot reach its model",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.common(ctx, t)
			p, err := b.core.Listen(ctx, 0, func(c net.Conn) { _, _ = io.WriteString(c, "from the core") })
			if err != nil {
				t.Fatalf("listen: %v", err)
			}
			defer func() { _ = p.Close() }()
			c, err := b.core.Dial(ctx, p.Number)
			if err != nil {
				t.Fatalf("dial: %v", err)
			}
			defer func() { _ = c.Close() }()
			if got, err := io.ReadAll(c); err != nil || string(got) != "from the core" {
				t.Errorf("read %q, %v", got, err)
			}
		},
	},
	{
		Name:   "services are told apart from processes of the agent",
		Guards: "a server of the task that is killed, or taken for a process of the agent",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, nil)
			if _, err := b.core.StartService(ctx, host.Service{Name: "kit", Argv: []string{"/bin/sh", "-c", "while :; do sleep 1; done"}}); err != nil {
				t.Fatalf("service: %v", err)
			}
			ps, err := b.core.Processes(ctx)
			if err != nil {
				t.Fatalf("processes: %v", err)
			}
			if left := ps.Since(nil); len(left) != 0 {
				t.Errorf("counts as left: %+v", left)
			}
			if _, err = b.core.Quiesce(ctx); err != nil {
				t.Fatalf("quiesce: %v", err)
			}
			names, _, err := b.core.RestartServices(ctx)
			if err != nil || !slices.Contains(names, "kit") {
				t.Errorf("started again: %q, %v", names, err)
			}
		},
	},
}

func beats(ctx context.Context, b *box) int {
	data, _, err := b.core.Read(ctx, "/tmp/beat", 4<<20)
	if err != nil {
		return 0
	}
	return strings.Count(string(data), "\n")
}

// limitClauses are about limits, and about reporting which are enforced.
var limitClauses = []conformance.Clause[Subject]{
	{
		Name:   "granted has an answer for each limit of the spec",
		Guards: "a result measured without the limits that it names",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, modest)
			g := b.Granted
			for what, grant := range map[string]environment.Grant{"cpu": g.CPU, "memory": g.Memory, "pids": g.Pids, "disk": g.Disk, "network": g.Network} {
				switch grant {
				case environment.GrantEnforced, environment.GrantBestEffort, environment.GrantNo:
				default:
					t.Errorf("%s was asked for and granted %q", what, grant)
				}
			}
		},
	},
	{
		Name:   "a limit of storage that is enforced holds",
		Guards: "one agent that fills the disk of the machine",
		Time:   30 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, modest)
			if b.Granted.Disk != environment.GrantEnforced {
				t.Logf("granted: %s", b.Granted.Disk)
				return
			}
			c := b.shell(ctx, t)
			if out, r := try(ctx, t, c, "head -c 200M /dev/zero > /tmp/fill"); r.OK() {
				t.Errorf("wrote 200 MiB into 64: %q", out)
			}
			sh(ctx, t, c, "rm -f /tmp/fill; echo x > /tmp/small")
		},
	},
	{
		Name:   "a limit of processes that is enforced holds",
		Guards: "one agent that takes every process of the machine",
		Time:   30 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, modest)
			if b.Granted.Pids != environment.GrantEnforced {
				t.Logf("granted: %s", b.Granted.Pids)
				return
			}
			out, _ := try(ctx, t, b.shell(ctx, t), "i=0; while [ $i -lt 400 ]; do sleep 50 >/dev/null 2>&1 & i=$((i+1)); done 2>/dev/null; :")
			ps, err := b.core.Processes(ctx)
			if err != nil || len(ps.List) > 160 {
				t.Errorf("%d processes run, %v; the limit is 128 (%q)", len(ps.List), err, out)
			}
			if _, err = b.core.Quiesce(ctx); err != nil {
				t.Fatalf("quiesce: %v", err)
			}
			if got := sh(ctx, t, b.shell(ctx, t), "echo still here"); got != "still here" {
				t.Errorf("afterwards: %q", got)
			}
		},
	},
	{
		Name:   "a limit of memory that is enforced holds",
		Guards: "one agent whose memory ends another's sandbox",
		Time:   30 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, modest)
			if b.Granted.Memory != environment.GrantEnforced {
				t.Logf("granted: %s", b.Granted.Memory)
				return
			}
			c := b.shell(ctx, t)
			if out, r := try(ctx, t, c, "head -c 400M /dev/zero | tail -c 300M | wc -c"); r.OK() && strings.TrimSpace(out) == fmt.Sprint(300<<20) {
				t.Errorf("held 300 MiB in 128")
			}
			if got := sh(ctx, t, c, "echo still here"); got != "still here" {
				t.Errorf("afterwards: %q", got)
			}
		},
	},
}

// modest sets limits that a test can reach.
func modest(p *environment.Spec) {
	p.Limits.CPUMilli, p.Limits.MemoryMiB, p.Limits.StorageMiB, p.Limits.Pids = 1000, 128, 64, 128
}

// abilityClauses are about the capabilities that the plugin announces.
var abilityClauses = []conformance.Clause[Subject]{
	{
		Name:   "images are prepared, and the error for a missing image names it",
		Guards: "a missing image that is tried again forever, or a capability that does not exist",
		Time:   60 * time.Second,
		Skip:   without(environment.CapabilityImages),
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			p, ok := s.Environment.(environment.Preparer)
			if !ok {
				t.Fatalf("announces %q and has no Prepare", environment.CapabilityImages)
			}
			got, err := p.Prepare(ctx, s.Spec.Image, s.Spec.Config, nil)
			if err != nil || got.Digest == "" {
				t.Errorf("prepare %+v: %+v, %v; want a digest", s.Spec.Image, got, err)
			}
			_, err = p.Prepare(ctx, environment.Image{Ref: "localhost/berth-kit/no-such-image:none"}, s.Spec.Config, nil)
			wants(t, "prepare an image that is not there", err, environment.ErrBadImage)
		},
	},
	{
		Name:   "kept images are listed, and no other image is removed",
		Guards: "a cleanup that removes an image of another user, or a capability that does not exist",
		Time:   60 * time.Second,
		Skip:   without(environment.CapabilityImageGC),
		// Kept and Drop take no configuration, so they may reach another engine
		// than the subject's, or none. Then the image below does not exist
		// there. The tests of each engine check that Drop works for listed
		// names.
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			k, ok := s.Environment.(environment.Keeper)
			if !ok {
				t.Fatalf("announces %q and keeps no images", environment.CapabilityImageGC)
			}
			all, err := k.Kept(ctx)
			if err != nil {
				t.Fatalf("kept: %v", err)
			}
			if slices.ContainsFunc(all, func(im environment.KeptImage) bool { return im.Ref == "" || im.Ref == s.Spec.Image.Ref }) {
				t.Errorf("kept: %+v; want names, and not %q, which was not made here", all, s.Spec.Image.Ref)
			}
			for _, ref := range []string{s.Spec.Image.Ref, "localhost/berth-kit/no-such-image:none", ""} {
				if dropped, err := k.Drop(ctx, ref); dropped { // an error is fine: the engine may be another one
					t.Errorf("drop of %q: %v, %v; want nothing dropped", ref, dropped, err)
				}
			}
			s.common(ctx, t) // the image still works
		},
	},
	{
		Name:   "a snapshot has the files of the sandbox",
		Guards: "a verification on another file system than the agent's",
		Time:   60 * time.Second,
		Skip:   without(environment.CapabilitySnapshot),
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			p, ok := s.Environment.(environment.Snapshotter)
			if !ok {
				t.Fatalf("announces %q and has no Snapshot", environment.CapabilitySnapshot)
			}
			b := s.fresh(ctx, t, nil)
			sh(ctx, t, b.shell(ctx, t), "echo kept > /kit-kept")
			if err := p.Stop(ctx, b.ID); err != nil {
				t.Fatalf("stop: %v", err)
			}
			changed, err := p.Changed(ctx, b.ID)
			if err != nil || !slices.Contains(changed, "/kit-kept") {
				t.Errorf("changed: %q, %v; want /kit-kept in it", changed, err)
			}
			image, err := p.Snapshot(ctx, b.ID)
			if err != nil {
				t.Fatalf("snapshot: %v", err)
			}
			t.Cleanup(func() { _, _ = s.Environment.Destroy(context.WithoutCancel(ctx), image.Ref) })
			copied := s.fresh(ctx, t, func(p *environment.Spec) { p.Image = image })
			if got := sh(ctx, t, copied.shell(ctx, t), "cat /kit-kept"); got != "kept" {
				t.Errorf("the copy has %q", got)
			}
		},
	},
	{
		Name:   "at the end nothing is left",
		Guards: "a machine that fills up with what runs left",
		Time:   60 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			s.common(ctx, t)
			s.kit.mu.Lock()
			boxes := []*box{s.kit.shared, s.kit.lent}
			s.kit.shared, s.kit.lent = nil, nil
			s.kit.mu.Unlock()
			for _, b := range boxes {
				if b == nil {
					continue
				}
				if err := b.destroy(ctx); err != nil {
					t.Errorf("destroy: %v", err)
				}
			}
			if ids, err := s.Environment.List(ctx, s.kit.owner); err != nil || len(ids) != 0 {
				t.Errorf("left: %q, %v", ids, err)
			}
		},
	},
}

func without(capability string) func(Subject) string {
	return func(s Subject) string {
		if !s.serves(capability) {
			return "it does not announce " + capability
		}
		return ""
	}
}
