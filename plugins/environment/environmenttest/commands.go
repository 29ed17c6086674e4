package environmenttest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// commandClauses are about running programs.
var commandClauses = []conformance.Clause[Subject]{
	{
		Name:   "an exit code is a result, not an error",
		Guards: "a failing test that counts as a broken environment",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			r, err := s.common(ctx, t).shell(ctx, t).Exec(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", "exit 43"}})
			if err != nil || r.ExitCode != 43 {
				t.Errorf("got %+v, %v; want exit code 43 and no error", r, err)
			}
		},
	},
	{
		Name:   "a program that is not there is an error with a name",
		Guards: "a typo in a task that looks like a lost sandbox",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			_, err := s.common(ctx, t).shell(ctx, t).Exec(ctx, sandbox.Command{Argv: []string{"no-such-program"}})
			if !errors.Is(err, sandbox.ErrNoProgram) {
				t.Errorf("got %v; want ErrNoProgram", err)
			}
		},
	},
	{
		Name:   "both outputs arrive apart, byte for byte",
		Guards: "output that is merged, or mangled because it is no UTF-8",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			var out, errs bytes.Buffer
			r, err := s.common(ctx, t).shell(ctx, t).Exec(ctx, sandbox.Command{
				Argv: []string{"/bin/sh", "-c", `printf 'a\000\377\200b'; printf 'c\376' >&2`}, Stdout: &out, Stderr: &errs,
			})
			if err != nil || !r.OK() || out.String() != "a\x00\xff\x80b" || errs.String() != "c\xfe" {
				t.Errorf("got %q and %q, %+v, %v", out.String(), errs.String(), r, err)
			}
		},
	},
	{
		Name:   "what is given on stdin is read, and then its end",
		Guards: "a command that waits for ever for more",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			var out bytes.Buffer
			r, err := s.common(ctx, t).shell(ctx, t).Exec(ctx, sandbox.Command{Argv: []string{"cat"}, Stdin: strings.NewReader("to and fro"), Stdout: &out})
			if err != nil || !r.OK() || out.String() != "to and fro" {
				t.Errorf("got %q, %+v, %v", out.String(), r, err)
			}
		},
	},
	{
		Name:   "fifty MiB come out whole",
		Guards: "output that is cut, or a deadlock, when a pipe is full",
		Time:   20 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			const size = 50 << 20
			n := &counter{}
			r, err := s.common(ctx, t).shell(ctx, t).Exec(ctx, sandbox.Command{Argv: []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}, Stdout: n})
			if err != nil || !r.OK() || n.n != size {
				t.Errorf("got %d bytes, %+v, %v", n.n, r, err)
			}
		},
	},
	{
		Name:   "fifty MiB go in whole",
		Guards: "input that is cut, or a deadlock, when a command reads slowly",
		Time:   20 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			const size = 50 << 20
			var out bytes.Buffer
			r, err := s.common(ctx, t).shell(ctx, t).Exec(ctx, sandbox.Command{
				Argv: []string{"wc", "-c"}, Stdin: io.LimitReader(rand.Reader, size), Stdout: &out,
			})
			if err != nil || !r.OK() || strings.TrimSpace(out.String()) != fmt.Sprint(size) {
				t.Errorf("counted %q, %+v, %v", out.String(), r, err)
			}
		},
	},
	{
		Name:   "a command ends with its first process",
		Guards: "a server in the background that holds up the test for ever",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.borrowed(ctx, t)
			began := time.Now()
			if got := sh(ctx, t, b.shell(ctx, t), "sleep 60 & echo started"); got != "started" {
				t.Errorf("printed %q", got)
			}
			if took := time.Since(began); took > conformance.Patience(5*time.Second) {
				t.Errorf("took %v", took)
			}
		},
	},
	{
		Name:   "what a command leaves running stays",
		Guards: "servers that an honest solution started and its test wants to ask",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.borrowed(ctx, t)
			sh(ctx, t, b.shell(ctx, t), "(while :; do echo x >> /tmp/stays; sleep 0.05; done) >/dev/null 2>&1 & :")
			c := b.shell(ctx, t)
			first := sh(ctx, t, c, "sleep 0.2; wc -l < /tmp/stays")
			if second := sh(ctx, t, c, "sleep 0.3; wc -l < /tmp/stays"); second == first {
				t.Errorf("it stopped at %s beats", first)
			}
		},
	},
	{
		Name:   "a timeout kills the whole tree",
		Guards: "grandchildren that work on after the deadline",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.borrowed(ctx, t)
			c := b.shell(ctx, t)
			r, err := c.Exec(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", "sh -c 'sleep 77' & setsid sleep 77 & sleep 77"}, Timeout: 300 * time.Millisecond})
			if err != nil || !r.TimedOut {
				t.Errorf("got %+v, %v; want a timeout", r, err)
			}
			noneLeft(ctx, t, b, "77")
		},
	},
	{
		Name:   "a cancel kills the whole tree",
		Guards: "an agent's command that runs on after its turn was cut off",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.borrowed(ctx, t)
			cut, cancel := context.WithCancel(ctx)
			time.AfterFunc(200*time.Millisecond, cancel)
			defer cancel()
			if r, err := b.shell(ctx, t).Exec(cut, sandbox.Command{Argv: []string{"/bin/sh", "-c", "sh -c 'sleep 78' & sleep 78"}}); err == nil {
				t.Errorf("got %+v; want the end of the context", r)
			}
			noneLeft(ctx, t, b, "78")
		},
	},
	{
		Name:   "commands at once do not mix",
		Guards: "output of one command in the answer of another",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					want := strings.Repeat(fmt.Sprintf("line of %d\n", i), 200)
					var out bytes.Buffer
					r, err := c.Exec(ctx, sandbox.Command{
						Argv: []string{"/bin/sh", "-c", fmt.Sprintf("i=0; while [ $i -lt 200 ]; do echo line of %d; i=$((i+1)); done", i)}, Stdout: &out,
					})
					if err != nil || !r.OK() || out.String() != want {
						t.Errorf("command %d: %d bytes, %+v, %v", i, out.Len(), r, err)
					}
				})
			}
			all.Wait()
		},
	},
	{
		Name:   "two hundred commands leave nothing behind in sandboxd",
		Guards: "descriptors or threads that leak with every command of a long session",
		Time:   20 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, nil)
			c := b.shell(ctx, t)
			sh(ctx, t, c, ":")
			before, err := b.core.Stats(ctx)
			if err != nil {
				t.Fatalf("stats: %v", err)
			}
			for range 200 {
				sh(ctx, t, c, ":")
			}
			eventually(ctx, t, "as many descriptors as before", func() bool {
				after, err := b.core.Stats(ctx)
				return err == nil && after.SandboxdDescriptors <= before.SandboxdDescriptors+2 && after.SandboxdGoroutines <= before.SandboxdGoroutines+4
			})
		},
	},
	{
		Name:   "a terminal is one",
		Guards: "editors and pagers that refuse to start",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			term, err := c.Terminal(ctx, sandbox.TerminalSpec{ID: fmt.Sprint("kit-", s.kit.counter.Add(1)), Argv: []string{"/bin/sh", "-c", "stty size; tty"}, Rows: 33, Columns: 91})
			if err != nil {
				t.Fatalf("terminal: %v", err)
			}
			defer func() { _ = term.Close() }()
			out, err := io.ReadAll(term)
			if err != nil || !strings.Contains(string(out), "33 91") || !strings.Contains(string(out), "/dev/pts/") {
				t.Errorf("printed %q, %v", out, err)
			}
		},
	},
}

// noneLeft waits until "sleep n" no longer runs in b.
func noneLeft(ctx context.Context, t *conformance.T, b *box, n string) {
	eventually(ctx, t, "no sleep "+n+" is left", func() bool {
		ps, err := b.core.Processes(ctx)
		if err != nil {
			t.Fatalf("processes: %v", err)
		}
		for _, p := range ps.List {
			if p.State != "Z" && len(p.Argv) == 2 && p.Argv[1] == n {
				return false
			}
		}
		return true
	})
}

type counter struct{ n int }

func (c *counter) Write(b []byte) (int, error) { c.n += len(b); return len(b), nil }
