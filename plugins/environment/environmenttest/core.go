package environmenttest

import (
	"errors"
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
var coreClauses = []clause{
	conformance.New("freeze stops everything, and thaw lets it continue", "an agent that works while its copies are judged", func(t *conformance.T, s Subject) {
		b := s.Fresh(t, nil)
		beats := func() int {
			data, _ := b.shell().ReadFile(t.Context(), "/tmp/beat", 4<<20) // it may not be there yet
			return len(data)
		}
		b.sh("(while :; do echo x >> /tmp/beat; sleep 0.01; done) >/dev/null 2>&1 & :")
		t.Eventually("a beat", func() bool { return beats() > 0 })
		_, err := b.Core.Freeze(t.Context())
		t.Must("freeze", err)
		frozen := beats()
		time.Sleep(150 * time.Millisecond)
		if now := beats(); now != frozen {
			t.Errorf("the size of a file grew from %d to %d while frozen", frozen, now)
		}
		t.Must("thaw", b.Core.Thaw(t.Context()))
		t.Eventually("a beat after thaw", func() bool { return beats() > frozen })
	}),
	conformance.New("quiesce kills everything, and commands work afterwards", "a daemon of the agent that changes what is graded", func(t *conformance.T, s Subject) {
		b := s.Fresh(t, nil)
		b.sh("for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' >/dev/null 2>&1 & done; :")
		if n := b.quiesce(); n < 3 {
			t.Errorf("killed %d; want at least 3", n)
		}
		for _, p := range b.processes().List {
			t.Errorf("process %d %q is left", p.PID, p.Argv())
		}
		b.as("", "", nil).prints("on", "echo on")
	}),
	conformance.New("a folder can be replaced, whatever the agent put there", "tests that run beside files which the agent planted", func(t *conformance.T, s Subject) {
		b := s.Fresh(t, nil)
		b.sh("rm -rf /tests /logs; mkdir -p /tests /elsewhere && echo planted > /tests/conftest.py && ln -s /elsewhere /logs")
		moved, err := b.Core.Fresh(t.Context(), "", 0, "/tests", "/logs/verifier")
		if err != nil || len(moved) == 0 {
			t.Fatalf("fresh: %+v, %v; want what was moved aside", moved, err)
		}
		b.prints("", "ls -A /tests /logs/verifier /elsewhere | grep -v : | grep . ; test -L /logs && echo link; :")
	}),
	conformance.New("a port inside reaches the core", "an agent without network that cannot reach its model", func(t *conformance.T, s Subject) {
		core := s.common(t).Core
		p, err := core.Listen(t.Context(), 0, func(c net.Conn) { _, _ = io.WriteString(c, "from the core") })
		t.Must("listen", err)
		defer func() { _ = p.Close() }()
		c, err := core.Dial(t.Context(), p.Number)
		t.Must("dial", err)
		defer func() { _ = c.Close() }()
		if got, err := io.ReadAll(c); err != nil || string(got) != "from the core" {
			t.Errorf("read %q, %v", got, err)
		}
	}),
	conformance.New("services are told apart from processes of the agent",
		"a server of the task that is killed, or taken for a process of the agent", func(t *conformance.T, s Subject) {
			b := s.Fresh(t, nil)
			_, err := b.Core.StartService(t.Context(), host.Service{Name: "kit", Argv: []string{"/bin/sh", "-c", "while :; do sleep 1; done"}})
			t.Must("service", err)
			if left := b.processes().Since(nil); len(left) != 0 {
				t.Errorf("counts as left: %+v", left)
			}
			b.quiesce()
			names, _, err := b.Core.RestartServices(t.Context())
			if err != nil || !slices.Contains(names, "kit") {
				t.Errorf("started again: %q, %v", names, err)
			}
		}),
}

// limitClauses are about limits, and about reporting which are enforced.
var limitClauses = []clause{
	conformance.New("granted has an answer for each limit of the spec", "a result measured without the limits that it names", func(t *conformance.T, s Subject) {
		g := s.Fresh(t, modest).Granted
		for what, grant := range map[string]environment.Grant{"cpu": g.CPU, "memory": g.Memory, "pids": g.Pids, "disk": g.Disk, "network": g.Network} {
			switch grant {
			case environment.GrantEnforced, environment.GrantBestEffort, environment.GrantNo:
			default:
				t.Errorf("%s was asked for and granted %q", what, grant)
			}
		}
	}),
	limit("storage", "one agent that fills the disk of the machine", func(g environment.Granted) environment.Grant { return g.Disk }, func(b *Box) {
		if out, r := b.try("head -c 200M /dev/zero > /tmp/fill"); r.OK() {
			b.t.Errorf("wrote 200 MiB into 64: %q", out)
		}
		b.sh("rm -f /tmp/fill; echo x > /tmp/small")
	}),
	limit("processes", "one agent that takes every process of the machine", func(g environment.Granted) environment.Grant { return g.Pids }, func(b *Box) {
		out, _ := b.try("i=0; while [ $i -lt 400 ]; do sleep 50 >/dev/null 2>&1 & i=$((i+1)); done 2>/dev/null; :")
		if n := len(b.processes().List); n > 160 {
			b.t.Errorf("%d processes run; the limit is 128 (%q)", n, out)
		}
		b.quiesce()
	}),
	limit("memory", "one agent whose memory ends another's sandbox", func(g environment.Granted) environment.Grant { return g.Memory }, func(b *Box) {
		if out, r := b.try("head -c 400M /dev/zero | tail -c 300M | wc -c"); r.OK() && strings.TrimSpace(out) == fmt.Sprint(300<<20) {
			b.t.Errorf("held 300 MiB in 128")
		}
	}),
}

// limit returns a clause about one limit, which is tried if it is granted as enforced.
func limit(what, guards string, granted func(environment.Granted) environment.Grant, exceed func(*Box)) clause {
	return clause{
		Name: "a limit of " + what + " that is enforced holds", Guards: guards, Time: 30 * time.Second,
		Run: func(t *conformance.T, s Subject) {
			b := s.Fresh(t, modest)
			if granted(b.Granted) == environment.GrantEnforced {
				exceed(b)
				b.as("", "", nil).prints("still here", "echo still here")
			}
		},
	}
}

// modest sets limits that a test can reach.
func modest(p *environment.Spec) {
	p.Limits.CPUMilli, p.Limits.MemoryMiB, p.Limits.StorageMiB, p.Limits.Pids = 1000, 128, 64, 128
}

const noImage = "localhost/berth-kit/no-such-image:none"

// abilityClauses are about the capabilities that the plugin announces.
var abilityClauses = []clause{
	conformance.New("images are prepared, and the error for a missing image names it",
		"a missing image that is tried again forever, or a capability that does not exist", func(t *conformance.T, s Subject) {
			p, ok := s.Environment.(environment.Preparer)
			if !ok {
				t.Fatalf("announces %q and has no Prepare", environment.CapabilityImages)
			}
			got, err := p.Prepare(t.Context(), s.Spec.Image, s.Spec.Config, nil)
			if err != nil || got.Digest == "" {
				t.Errorf("prepare %+v: %+v, %v; want a digest", s.Spec.Image, got, err)
			}
			if _, err = p.Prepare(t.Context(), environment.Image{Ref: noImage}, s.Spec.Config, nil); !errors.Is(err, environment.ErrBadImage) {
				t.Errorf("prepare an image that is not there: got %v; want %v", err, environment.ErrBadImage)
			}
		}).Within(60 * time.Second).Unless(without(environment.CapabilityImages)),
	// Kept and Drop take no configuration, so they may reach another engine than the
	// subject's, or none. Then the image below does not exist there. The tests of
	// each engine check that Drop works for listed names.
	conformance.New("kept images are listed, and no other image is removed",
		"a cleanup that removes an image of another user, or a capability that does not exist", func(t *conformance.T, s Subject) {
			k, ok := s.Environment.(environment.Keeper)
			if !ok {
				t.Fatalf("announces %q and keeps no images", environment.CapabilityImageGC)
			}
			all, err := k.Kept(t.Context())
			t.Must("kept", err)
			if slices.ContainsFunc(all, func(im environment.KeptImage) bool { return im.Ref == "" || im.Ref == s.Spec.Image.Ref }) {
				t.Errorf("kept: %+v; want names, and not %q, which was not made here", all, s.Spec.Image.Ref)
			}
			for _, ref := range []string{s.Spec.Image.Ref, noImage, ""} {
				if dropped, err := k.Drop(t.Context(), ref); dropped { // an error is fine: the engine may be another one
					t.Errorf("drop of %q: %v, %v; want nothing dropped", ref, dropped, err)
				}
			}
			s.common(t) // the image still works
		}).Within(60 * time.Second).Unless(without(environment.CapabilityImageGC)),
	conformance.New("at the end nothing is left", "a machine that fills up with what runs left", func(t *conformance.T, s Subject) {
		t.Check("destroy", s.common(t).destroy(t.Context()))
		s.kit.shared = nil
		s.listed(t, s.kit.owner)
	}).Within(60 * time.Second),
}
