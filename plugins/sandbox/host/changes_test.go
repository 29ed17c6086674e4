package host_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func changed(t *testing.T, b *sandboxtest.Box, c host.Commands) host.Changed {
	t.Helper()
	now, err := b.Changes(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func TestChangesSinceTheTurnBegan(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	tools := host.Commands{Env: []string{"PATH=/app/bin:/usr/bin", "HOME=/app"}, Programs: []string{"/app/tests/run"}, Placed: []string{"/app/tests"}}
	run(t, c, "mkdir -p /app/bin /app/tests; echo > /app/bin/tool; echo > /app/.profile")
	if now := changed(t, b, tools); len(now.Files) > 0 {
		t.Errorf("before a turn began: %+v", now)
	}
	if err := b.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := changed(t, b, tools); len(now.Files) > 0 {
		t.Errorf("before the agent did anything: %+v", now)
	}
	run(t, c, "echo evil > /app/.profile; touch /app/bin/tool /app/sh; printf '#!/app/sh\n' > /app/tests/run; chmod +x /app/tests/run; for i in $(seq 120); do : > /app/bin/many$i; done")
	now := changed(t, b, tools)
	if len(now.Files) != 100 || now.Files[0] != "/app/.profile" || now.More != 23 {
		t.Errorf("changed: %d files and %d more, first %q; want the start-up file first, and 100 and 23", len(now.Files), now.More, now.Files)
	}
	run(t, c, "rm /app/bin/many*")
	now = changed(t, b, tools)
	if !slices.Equal(now.Files, []string{"/app/.profile", "/app/bin/tool", "/app/sh"}) {
		t.Errorf("changed: %q", now.Files)
	}
	if err := b.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := changed(t, b, tools); len(now.Files) > 0 {
		t.Errorf("another turn has begun: %+v", now)
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
	if err := b.Mark(ctx); err != nil {
		t.Fatal(err)
	}
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
	if now := changed(t, b, host.Commands{ServicesOnly: true}); len(now.Services) > 0 {
		t.Errorf("what was started after the agent's end is %+v", now.Services)
	}
	// A later turn does not make them the image's again, and what a service runs
	// in turn is seen.
	if err := b.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	run(t, b.Shell("agent"), "echo >> /app/helper")
	restart()
	now := changed(t, b, host.Commands{ServicesOnly: true})
	if len(now.Services) != 1 || now.Services[0].Name != "c" || !slices.Equal(now.Services[0].Files, []string{"/app/helper"}) || now.Services[0].Traceable {
		t.Errorf("services: %+v, want c for its helper", now.Services)
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
			if err := b.Mark(ctx); err != nil {
				t.Fatal(err)
			}
			if now := changed(t, b, host.Commands{ServicesOnly: true}); len(now.Services) > 0 {
				t.Errorf("before the agent ran a command: %+v", now.Services)
			}
			c := b.ShellOf(host.Session{ID: "agent", User: tt.agent})
			said := run(t, c, `for p in /proc/[0-9]*; do [ "$(cat $p/comm)" != sleep ] || pid=$p; done 2>/dev/null
if (exec 3<> $pid/mem) 2>/dev/null; then echo open; else echo shut; fi`)
			if got := strings.TrimSpace(said) == "open"; got != tt.open {
				t.Errorf("its memory is open to the agent: %v, want %v", got, tt.open)
			}
			now := changed(t, b, host.Commands{ServicesOnly: true})
			if got := len(now.Services) == 1 && now.Services[0].Traceable; got != tt.want && !sudo() {
				t.Errorf("traceable: %v, want %v: %+v", got, tt.want, now.Services)
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
