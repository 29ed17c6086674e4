package environmenttest

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// sidecarClauses are about containers in addition to the main one.
func sidecarClauses() []clause {
	all := []clause{
		conformance.New("containers of a sandbox reach each other by name, and nothing else",
			"a task without internet whose sidecar is a way out, or cannot be reached", reach),
		conformance.New("containers have their own files and processes, and share volumes",
			"a database whose files the agent can read, or a volume that is two", func(t *conformance.T, s Subject) {
				main, side := s.pair(t, nil)
				side.sh("echo secret > /kit-own; echo shared > /vol/file; (sleep 1234 >/dev/null 2>&1 &) ; :")
				main.prints("shared\nnone", "cat /shared/file; test ! -e /kit-own && echo none")
				if ps := main.processes().List; len(ps) != 0 {
					t.Errorf("processes of main: %+v", ps)
				}
			}),
		conformance.New("destroy ends the sidecars, too", "databases that stay on the machine after the attempt", func(t *conformance.T, s Subject) {
			own := s.kit.owner + "-sides"
			main, side := s.pair(t, func(p *environment.Spec) { p.Labels.Owner = own })
			s.listed(t, own, main.ID)
			main.destroyed(side)
			s.listed(t, own)
		}),
		conformance.New("a create whose sidecar fails leaves nothing",
			"a part of a sandbox that is left by each attempt of a task with a bad image", func(t *conformance.T, s Subject) {
				_ = s.unmade(t, "a sidecar that cannot be", func(p *environment.Spec) {
					p.Volumes = []environment.Volume{{Name: "v", Target: "/vol"}}
					p.Sidecars = []environment.Sidecar{{Name: "side", Image: p.Image, Control: filepath.Join(t.TempDir(), "gone")}}
				})
			}),
	}
	for i := range all {
		all[i] = all[i].Within(60 * time.Second).Unless(without(environment.CapabilitySidecars))
	}
	return append([]clause{unable}, all...)
}

var unable = conformance.New("without the capability, sidecars and volumes are refused", "a task that runs without its database and fails for it", func(t *conformance.T, s Subject) {
	for what, change := range map[string]func(*environment.Spec){
		"sidecar": func(p *environment.Spec) {
			p.Sidecars = []environment.Sidecar{{Name: "side", Image: p.Image, Control: p.Control}}
		},
		"volume": func(p *environment.Spec) { p.Volumes = []environment.Volume{{Name: "v", Target: "/vol"}} },
	} {
		if r, err := s.Environment.Check(t.Context(), s.spec(t, change)); err != nil || len(r.Refusals) == 0 {
			t.Errorf("check of a %s: %+v, %v; want a refusal", what, r, err)
		}
	}
}).Unless(func(s Subject) bool { return s.serves(environment.CapabilitySidecars) }, "it announces "+environment.CapabilitySidecars)

// reach looks for each container from the other one, and for a way out.
func reach(t *conformance.T, s Subject) {
	main, side := s.pair(t, func(p *environment.Spec) {
		p.Hostname, p.Sidecars[0].Hostname, p.Sidecars[0].Aliases = "kit-main", "kit-side", []string{"kit-alias"}
	})
	main.prints("kit-main", "cat /proc/sys/kernel/hostname")
	side.prints("kit-side", "cat /proc/sys/kernel/hostname")
	main.sh("for n in side kit-side kit-alias; do (getent hosts $n || grep -w $n /etc/hosts) | grep '^172.30.255.3\\>' || exit 1; done")
	side.sh("for n in main kit-main; do (getent hosts $n || grep -w $n /etc/hosts) | grep '^172.30.255.2\\>' || exit 1; done")
	if _, r := side.try("command -v nc"); r.OK() {
		// Both listen on one port, each on its own, in a loop: on a busy machine an
		// answer may come too late, and then the client asks again.
		const listen = "echo of %s > /tmp/said; (while nc -l -p 7001 </tmp/said; do :; done >/tmp/heard 2>&1 &) ; :"
		main.sh(fmt.Sprintf(listen, "main"))
		side.sh(fmt.Sprintf(listen, "side"))
		for other, b := range map[string]*Box{"side": main, "main": side} {
			t.Eventually("an answer of "+other, func() bool {
				out, _ := b.try("echo to " + other + " | nc -w 5 " + other + " 7001")
				return out == "of "+other
			})
		}
		t.Eventually("what main said", func() bool {
			if _, r := side.try("grep -qx 'to side' /tmp/heard"); r.OK() {
				return true
			}
			_, _ = main.try("echo to side | nc -w 5 side 7001") // the answer may come before the message is written
			return false
		})
	} else {
		t.Logf("no nc inside: only name resolution is checked")
	}
	for who, b := range map[string]*Box{"main": main, "side": side} {
		// One network, 172.30.255.0/24, and nothing beyond it.
		out := b.sh("grep -v Iface /proc/net/route; grep -w -v lo /proc/net/ipv6_route | grep -v -e '^fe80' -e '^ff00'; :")
		if f := strings.Fields(out); len(f) != 11 || f[1] != "00FF1EAC" || f[2] != "00000000" || f[7] != "00FFFFFF" {
			t.Errorf("%s has routes: %s", who, out)
		}
		bounding, err := strconv.ParseUint(b.sh("sed -n 's/^CapBnd:[^0-9a-f]*//p' /proc/self/status"), 16, 64)
		if err != nil || bounding&(1<<12) != 0 {
			t.Errorf("commands in %s can get NET_ADMIN: %#x, %v", who, bounding, err)
		}
	}
}

// pair creates a sandbox of two containers that share a volume: /shared in
// main, /vol in side.
func (s *Subject) pair(t *conformance.T, change func(*environment.Spec)) (main, side *Box) {
	f, err := host.NewFolder(filepath.Join(s.kit.folder, fmt.Sprint("d", s.kit.counter.Add(1))), s.kit.binary)
	t.Must("make a control folder", err)
	t.Cleanup(func(context.Context) { _ = f.Close() })
	n := host.NewNetwork()
	t.Cleanup(func(context.Context) { n.Close() })
	var joining []*host.Joining
	join := func(control, address string) {
		j, wrong := n.Join(control, netip.PrefixFrom(netip.MustParseAddr(address), 24))
		t.Must("join a network", wrong)
		joining = append(joining, j)
	}
	const first, second = "172.30.255.2", "172.30.255.3"
	main = s.Fresh(t, func(p *environment.Spec) {
		join(p.Control, first)
		join(f.Path, second)
		p.Address = first
		p.Volumes = []environment.Volume{{Name: "v", Target: "/shared"}}
		p.Sidecars = []environment.Sidecar{{Name: "side", Image: p.Image, Control: f.Path, Address: second, Volumes: []environment.Volume{{Name: "v", Target: "/vol"}}}}
		if change != nil {
			change(p)
		}
	})
	if len(main.Sidecars) != 1 || main.Sidecars[0].Name != "side" || main.Sidecars[0].Stream != "" {
		t.Fatalf("its sidecars are %+v; want \"side\", reached by its control folder", main.Sidecars)
	}
	side = &Box{folder: f, s: s, t: t}
	side.Core, err = connect(t.Context(), f, main.Sidecars[0].PID)
	t.Must("connect the sidecar", err)
	t.Cleanup(func(context.Context) { _ = side.Core.Close() })
	for _, j := range joining {
		if err = j.Wait(t.Context()); err != nil {
			t.Fatalf("%v: does each container have the device /dev/net/tun and start with NET_ADMIN?", err)
		}
	}
	return main, side
}
