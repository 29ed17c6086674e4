package environmenttest

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// sh runs a script and returns its output without the last newline. If the
// script fails or does not run, the clause ends.
func sh(ctx context.Context, t *conformance.T, c *sandbox.Client, script string) string {
	out, r := try(ctx, t, c, script)
	if !r.OK() {
		t.Fatalf("%q ended with %+v and printed %q", script, r, out)
	}
	return out
}

// try is sh for scripts that may fail.
func try(ctx context.Context, t *conformance.T, c *sandbox.Client, script string) (string, sandbox.Result) {
	var out bytes.Buffer
	r, err := c.Exec(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", script}, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("%q did not run: %v", script, err)
	}
	return strings.TrimSuffix(out.String(), "\n"), r
}

// alive reports whether a process of the host exists.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// eventually waits until f is true, five seconds on an idle machine. If that
// does not come about, the clause fails before its time is used up: it waits for
// a result, and the plugin does not hang.
func eventually(ctx context.Context, t *conformance.T, what string, f func() bool) {
	end := time.Now().Add(conformance.Patience(5 * time.Second))
	if d, ok := ctx.Deadline(); ok {
		end = earlier(end, d.Add(-time.Until(d)/5))
	}
	late := time.After(time.Until(end))
	for !f() {
		select {
		case <-late:
			t.Fatalf("not so in time: %s", what)
		case <-ctx.Done():
			t.Fatalf("not so in time: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func itoa(n int) string { return strconv.Itoa(n) }

// sessionOf returns a new session in b.
func sessionOf(b *box) host.Session {
	return host.Session{ID: "session-" + strconv.FormatInt(b.s.kit.counter.Add(1), 10)}
}

// wants fails the clause unless err is want.
func wants(t *conformance.T, what string, err, want error) {
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v; want %v", what, err, want)
	}
}
