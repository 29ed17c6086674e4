package host_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

func changed(t *testing.T, b *sandboxtest.Box, without ...string) host.Changed {
	t.Helper()
	now, err := b.Changes(t.Context(), without...)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func suspects(t *testing.T, b *sandboxtest.Box) []host.ServiceChange {
	t.Helper()
	services, err := b.SuspectServices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return services
}

func mark(t *testing.T, b *sandboxtest.Box, c system.Commands, made time.Time) {
	t.Helper()
	if err := b.Mark(t.Context(), c, made); err != nil {
		t.Fatal(err)
	}
}

func TestChangesSinceTheTurnBegan(t *testing.T) {
	t.Parallel()
	made := time.Now()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	run(t, c, "mkdir -p /app/bin /app/tests; echo > /app/bin/tool; echo > /app/bin/gone; echo > /app/.profile")
	if now := changed(t, b); len(now.Files) > 0 {
		t.Errorf("before a turn began: %+v", now)
	}
	mark(t, b, system.Commands{Env: []string{"PATH=/app/bin:/usr/bin", "HOME=/app"}, Dir: "/work"}, made)
	if now := changed(t, b); len(now.Files) > 0 {
		t.Errorf("before the agent did anything: %+v", now)
	}
	run(t, c, "echo evil > /app/.profile; touch /app/bin/tool; rm /app/bin/gone; echo > /app/mine; for i in $(seq 120); do : > /app/bin/many$i; done")
	if now := changed(t, b); len(now.Files) != 100 || now.Files[0] != "/app/.profile" || now.More != 23 {
		t.Errorf("changed: %d files and %d more: %q; want 100 and 23", len(now.Files), now.More, now.Files)
	}
	run(t, c, "rm /app/bin/many*; rm /etc/ld.so.cache; echo > /etc/new")
	now := changed(t, b, "/app/bin")
	if !slices.Equal(now.Files, []string{"/etc/ld.so.cache", "/etc/new"}) {
		t.Errorf("changed since then: %q", now.Files)
	}
	if now := changed(t, b); len(now.Files) > 0 {
		t.Errorf("nothing has changed since then: %+v", now)
	}
}

func TestAServiceThatChangedIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c, ctx := b.Shell("agent"), t.Context()
	run(t, c, "for s in a b c; do printf '#!/bin/sh\nwhile :; do sleep 0.2; /app/helper; done\n' > /app/$s; chmod +x /app/$s; done; cp /app/a /app/helper")
	for _, name := range []string{"a", "b", "c"} {
		if _, err := b.StartService(ctx, host.Service{Name: name, Argv: []string{"/app/" + name}}); err != nil {
			t.Fatal(err)
		}
	}
	mark(t, b, system.Commands{}, time.Time{})
	run(t, c, "echo evil >> /app/a; rm /app/b")
	restart := func() []string {
		if _, err := b.Quiesce(ctx); err != nil {
			t.Fatal(err)
		}
		started, refused, err := b.RestartServices(ctx)
		if err != nil || len(refused) != 2 || refused[0].Name != "a" || !slices.Equal(refused[0].Files, []string{"/app/a"}) ||
			refused[1].Name != "b" || !slices.Equal(refused[1].Files, []string{"/app/b"}) {
			t.Errorf("started %q, refused %+v, %v; want a and b refused", started, refused, err)
		}
		return started
	}
	if started := restart(); !slices.Equal(started, []string{"c"}) {
		t.Errorf("started %q, want c", started)
	}
	if services := suspects(t, b); len(services) > 0 {
		t.Errorf("what was started after the agent's end is %+v", services)
	}
	// What a service runs in turn is seen.
	run(t, b.Shell("agent"), "echo >> /app/helper")
	restart()
	services := suspects(t, b)
	if len(services) != 1 || services[0].Name != "c" || !slices.Equal(services[0].Files, []string{"/app/helper"}) || services[0].Traceable {
		t.Errorf("services: %+v, want c for its helper", services)
	}
}

// Who has a process's user id can write to its memory, and root can take any
// user id.
func TestAServiceThatCanBeTraced(t *testing.T) {
	t.Parallel()
	many := os.Geteuid() == 0
	for _, tt := range []struct {
		service, agent string
		open, want     bool
	}{{"root", "root", true, true}, {"alice", "root", false, true}, {"alice", "alice", true, true}, {"root", "alice", false, false}} {
		t.Run(tt.service+" "+tt.agent, func(t *testing.T) {
			t.Parallel()
			if tt.service+tt.agent != "rootroot" {
				testlevel.Root(t, "be several users in a namespace")
			}
			b := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: many})
			ctx := t.Context()
			if _, err := b.StartService(ctx, host.Service{Name: "s", Argv: []string{"sleep", "8400"}, User: tt.service}); err != nil {
				t.Fatal(err)
			}
			mark(t, b, system.Commands{}, time.Time{})
			if services := suspects(t, b); len(services) > 0 {
				t.Errorf("before the agent ran a command: %+v", services)
			}
			c := b.ShellOf(host.Session{ID: "agent", User: tt.agent})
			said := run(t, c, `for p in /proc/[0-9]*; do [ "$(cat $p/comm)" != sleep ] || pid=$p; done 2>/dev/null
if (exec 3<> $pid/mem) 2>/dev/null; then echo open; else echo shut; fi`)
			if got := strings.TrimSpace(said) == "open"; got != tt.open {
				t.Errorf("its memory is open to the agent: %v, want %v", got, tt.open)
			}
			services := suspects(t, b)
			if got := len(services) == 1 && services[0].Traceable; got != tt.want && !sudo() {
				t.Errorf("traceable: %v, want %v: %+v", got, tt.want, services)
			}
		})
	}
}

// sudo says whether this machine, whose programs are those of the sandbox, has
// a program with which users become root.
func sudo() bool {
	for _, name := range []string{"/usr/bin/sudo", "/usr/bin/doas"} {
		if info, err := os.Stat(name); err == nil && info.Mode()&os.ModeSetuid != 0 {
			return true
		}
	}
	return false
}
