package environmenttest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// sidecarClauses are about containers in addition to the main one.
var sidecarClauses = []conformance.Clause[Subject]{
	{
		Name:   "without the capability, sidecars and volumes are refused",
		Guards: "a task that runs without its database and fails for it",
		Skip: func(s Subject) string {
			if slices.Contains(s.Capabilities, environment.CapabilitySidecars) {
				return "it announces " + environment.CapabilitySidecars
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			for what, change := range map[string]func(*environment.Spec){
				"sidecar": func(p *environment.Spec) {
					p.Sidecars = []environment.Sidecar{{Name: "side", Image: p.Image, Control: p.Control}}
				},
				"volume": func(p *environment.Spec) { p.Volumes = []environment.Volume{{Name: "v", Target: "/vol"}} },
			} {
				spec, folder, err := s.spec(change)
				if err != nil {
					t.Fatalf("%v", err)
				}
				defer func() { _ = folder.Close() }()
				if r, err := s.Environment.Check(ctx, spec); err != nil || len(r.Refusals) == 0 {
					t.Errorf("check of a %s: %+v, %v; want a refusal", what, r, err)
				}
			}
		},
	},
	{
		Name:   "containers of a sandbox reach each other by name, and nothing else",
		Guards: "a task without internet whose sidecar is a way out, or cannot be reached",
		Time:   60 * time.Second,
		Skip:   without(environment.CapabilitySidecars),
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			main, side := s.pairOf(ctx, t, func(p *environment.Spec) {
				p.Hostname, p.Sidecars[0].Hostname, p.Sidecars[0].Aliases = "kit-main", "kit-side", []string{"kit-alias"}
			})
			m, c := main.shell(ctx, t), side.shell(ctx, t)
			for want, where := range map[string]*sandbox.Client{"kit-main": m, "kit-side": c} {
				if out := sh(ctx, t, where, "cat /proc/sys/kernel/hostname"); out != want {
					t.Errorf("the host name %s is %q inside", want, out)
				}
			}
			sh(ctx, t, m, "for n in kit-side kit-alias; do (getent hosts $n || grep -w $n /etc/hosts) | grep '^172.30.255.3\\>' || exit 1; done")
			sh(ctx, t, c, "(getent hosts kit-main || grep -w kit-main /etc/hosts) | grep '^172.30.255.2\\>'")
			if out, r := try(ctx, t, c, "command -v nc"); !r.OK() {
				t.Logf("no nc inside: only name resolution is checked (%s)", out)
				sh(ctx, t, m, "getent hosts side || grep -w side /etc/hosts")
				return
			}
			// Each side listens in a loop: on a busy machine an answer may come
			// too late, and then the client asks again.
			sh(ctx, t, c, "echo from the side > /tmp/said; (while nc -l -p 7001 </tmp/said; do :; done >/tmp/heard 2>&1 &) ; :")
			eventually(ctx, t, "an answer of the sidecar", func() bool {
				out, _ := try(ctx, t, m, "echo to the side | nc -w 5 side 7001")
				return out == "from the side"
			})
			sh(ctx, t, m, "echo of main > /tmp/said; (while nc -l -p 7002 </tmp/said; do :; done >/dev/null 2>&1 &) ; :")
			eventually(ctx, t, "an answer of main", func() bool { out, _ := try(ctx, t, c, "nc -w 5 main 7002 </dev/null"); return out == "of main" })
			eventually(ctx, t, "what main said", func() bool {
				if _, r := try(ctx, t, c, "grep -qx 'to the side' /tmp/heard"); r.OK() {
					return true
				}
				_, _ = try(ctx, t, m, "echo to the side | nc -w 5 side 7001") // the answer may come before the message is written
				return false
			})
			// Both listen on one port, each on its own.
			sh(ctx, t, m, "echo own > /tmp/own; (while nc -l -p 7001 </tmp/own; do :; done >/dev/null 2>&1 &) ; :")
			eventually(ctx, t, "an answer of main on the sidecar's port", func() bool {
				out, _ := try(ctx, t, c, "nc -w 5 main 7001 </dev/null")
				return out == "own"
			})
			for who, shell := range map[string]*box{"main": main, "side": side} {
				// One network, 172.30.255.0/24, and nothing beyond it.
				out := sh(ctx, t, shell.shell(ctx, t), "grep -v Iface /proc/net/route; grep -w -v lo /proc/net/ipv6_route | grep -v -e '^fe80' -e '^ff00'; :")
				if f := strings.Fields(out); len(f) != 11 || f[1] != "00FF1EAC" || f[2] != "00000000" || f[7] != "00FFFFFF" {
					t.Errorf("%s has routes: %s", who, out)
				}
				if out, r := try(ctx, t, shell.shell(ctx, t), "grep CapBnd /proc/self/status"); r.OK() {
					bounding, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(out, "CapBnd:")), 16, 64)
					if err != nil || bounding&(1<<12) != 0 {
						t.Errorf("commands in %s can get NET_ADMIN: %s, %v", who, out, err)
					}
				}
			}
		},
	},
	{
		Name:   "containers have their own files and processes, and share volumes",
		Guards: "a database whose files the agent can read, or a volume that is two",
		Time:   60 * time.Second,
		Skip:   without(environment.CapabilitySidecars),
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			main, side := s.pair(ctx, t)
			m, c := main.shell(ctx, t), side.shell(ctx, t)
			sh(ctx, t, c, "echo secret > /kit-own; echo shared > /vol/file; (sleep 1234 >/dev/null 2>&1 &) ; :")
			if out := sh(ctx, t, m, "cat /shared/file; test ! -e /kit-own && echo none"); out != "shared\nnone" {
				t.Errorf("main sees %q", out)
			}
			ps, err := main.core.Processes(ctx)
			if err != nil || len(ps.List) != 0 {
				t.Errorf("processes of main: %+v, %v", ps.List, err)
			}
		},
	},
	{
		Name:   "destroy ends the sidecars, too",
		Guards: "databases that stay on the machine after the attempt",
		Time:   60 * time.Second,
		Skip:   without(environment.CapabilitySidecars),
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			own := s.kit.owner + "-sides"
			main, side := s.pairOf(ctx, t, func(p *environment.Spec) { p.Labels.Owner = own })
			if ids, err := s.Environment.List(ctx, own); err != nil || !slices.Equal(ids, []string{main.ID}) {
				t.Errorf("list: %q, %v; want the sandbox %q alone", ids, err, main.ID)
			}
			if _, err := s.Environment.Destroy(ctx, main.ID); err != nil {
				t.Fatalf("destroy: %v", err)
			}
			select {
			case <-side.core.Lost():
			case <-time.After(conformance.Patience(5 * time.Second)):
				t.Errorf("the sandboxd of the sidecar still answers five seconds after destroy")
			}
			if ids, err := s.Environment.List(ctx, own); err != nil || len(ids) != 0 {
				t.Errorf("after destroy: %q, %v", ids, err)
			}
		},
	},
	{
		Name:   "a create whose sidecar fails leaves nothing",
		Guards: "a part of a sandbox that is left by each attempt of a task with a bad image",
		Time:   60 * time.Second,
		Skip:   without(environment.CapabilitySidecars),
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			own := s.kit.owner + "-halves"
			spec, folder, err := s.spec(func(p *environment.Spec) {
				p.Labels.Owner = own
				p.Volumes = []environment.Volume{{Name: "v", Target: "/vol"}}
				p.Sidecars = []environment.Sidecar{{Name: "side", Image: p.Image, Control: filepath.Join(t.TempDir(), "gone")}}
			})
			if err != nil {
				t.Fatalf("%v", err)
			}
			defer func() { _ = folder.Close() }()
			if made, err := s.Environment.Create(ctx, spec); err == nil {
				_, _ = s.Environment.Destroy(ctx, made.ID)
				t.Errorf("made %q with a sidecar that cannot be", made.ID)
			}
			if ids, err := s.Environment.List(ctx, own); err != nil || len(ids) != 0 {
				t.Errorf("left %q, %v", ids, err)
			}
		},
	},
}

// pair creates a sandbox of two containers that share a volume: /shared in
// main, /vol in side.
func (s *Subject) pair(ctx context.Context, t *conformance.T) (main, side *box) {
	return s.pairOf(ctx, t, nil)
}

func (s *Subject) pairOf(ctx context.Context, t *conformance.T, change func(*environment.Spec)) (main, side *box) {
	f, err := host.NewFolder(filepath.Join(s.kit.folder, fmt.Sprint("d", s.kit.counter.Add(1))), s.kit.binary)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	n := host.NewNetwork()
	t.Cleanup(n.Close)
	var joining []*host.Joining
	join := func(control, address string) {
		j, wrong := n.Join(control, netip.PrefixFrom(netip.MustParseAddr(address), 24))
		if wrong != nil {
			t.Fatalf("%v", wrong)
		}
		joining = append(joining, j)
	}
	const first, second = "172.30.255.2", "172.30.255.3"
	main = s.fresh(ctx, t, func(p *environment.Spec) {
		join(p.Control, first)
		join(f.Path, second)
		p.Address = first
		p.Volumes = []environment.Volume{{Name: "v", Target: "/shared"}}
		p.Sidecars = []environment.Sidecar{{Name: "side", Image: p.Image, Control: f.Path, Address: second, Volumes: []environment.Volume{{Name: "v", Target: "/vol"}}}}
		if change != nil {
			change(p)
		}
	})
	if len(main.Sidecars) != 1 || main.Sidecars[0].Name != "side" {
		t.Fatalf("its sidecars are %+v", main.Sidecars)
	}
	if main.Sidecars[0].Stream != "" {
		t.Fatalf("the kit reaches sidecars by their control folder, and this one offers a stream")
	}
	side = &box{folder: f, s: s}
	if side.core, err = connect(ctx, f, main.Sidecars[0].PID); err != nil {
		t.Fatalf("connect the sidecar: %v", errors.Join(err, ctx.Err()))
	}
	t.Cleanup(func() { _ = side.core.Close() })
	for _, j := range joining {
		if err = j.Wait(ctx); err != nil {
			t.Fatalf("%v: does each container have the device /dev/net/tun and start with NET_ADMIN?", err)
		}
	}
	return main, side
}
