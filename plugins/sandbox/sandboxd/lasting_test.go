package sandboxd_test

import (
	"context"
	"errors"
	"fmt"
	"go/build"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// Whatever commands do, PID 1 is afterwards what it was before.
func TestTenThousandCommandsLeakNothing(t *testing.T) {
	t.Parallel()
	count := 1000
	if testlevel.E2E() {
		count = 10_000
	}
	b := sandboxtest.Start(t, sandboxtest.Options{Without: []string{"silence"}})
	manyCommands(t, b, 320)
	before := settled(t, b)
	manyCommands(t, b, count)
	after := settled(t, b)
	t.Logf("before %+v\nafter %+v", before, after)
	if after.goroutines > before.goroutines+4 || after.descriptors > before.descriptors+2 ||
		after.threads > before.threads+2 { // its memory is looked at in the shipped binary, which has no race detector in it
		t.Error("PID 1 has grown")
	}
}

// manyCommands runs n commands, 16 at once, in four sessions; one in five
// leaves an orphan.
func manyCommands(t *testing.T, b *sandboxtest.Box, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for worker := range 16 {
		c := b.Shell(fmt.Sprint("s", worker%4))
		wg.Go(func() {
			defer c.Close()
			for i := range n / 16 {
				want, script := i%7, fmt.Sprintf("exit %d", i%7)
				if i%5 == 0 {
					script = fmt.Sprintf("(setsid true &) & exit %d", want)
				}
				r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", script}})
				if err != nil || r.ExitCode != want {
					t.Errorf("command %d: %+v, %v; want exit code %d", i, r, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

// using is what PID 1 uses.
type using struct{ goroutines, descriptors, threads int }

// settled is what PID 1 uses once nothing happens any more.
func settled(t *testing.T, b *sandboxtest.Box) (now using) {
	t.Helper()
	self := b.ShellOf(host.Session{ID: "self", Grading: true})
	defer self.Close()
	for last := -1; ; time.Sleep(50 * time.Millisecond) { // nothing happens for that long
		text, err := self.Read(t.Context(), sandboxd.Self, 1<<10)
		if errors.Is(err, sandbox.ErrNotFound) {
			continue
		}
		running, failed := b.Processes(t.Context())
		if err = errors.Join(err, failed); err == nil {
			_, err = fmt.Sscan(string(text), &now.goroutines, &now.descriptors, &now.threads)
		}
		if err != nil {
			t.Fatal(err)
		}
		if now.goroutines == last && len(running.List) == 0 {
			return now
		}
		last = now.goroutines
	}
}

// Terminals, kept commands and ports, opened and left in every way.
func TestWhatIsKeptLeaksNothing(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{Without: []string{"silence"}})
	some := func(round, n int) {
		for i := range n {
			c, id := b.Shell("agent"), fmt.Sprintf("%d-%d", round, i)
			term, err := c.Terminal(t.Context(), sandbox.TerminalSpec{ID: "t" + id, Argv: []string{"sh", "-c", "echo x; sleep 0.01"}})
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				_, _ = io.Copy(io.Discard, term)
			}
			_ = term.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%5)*2*time.Millisecond)
			_, _ = c.Exec(ctx, sandbox.Command{ID: "k" + id, Argv: []string{"sh", "-c", "echo x; sleep 0.005; echo y"}})
			cancel()
			p, err := b.Listen(t.Context(), 0, func(c net.Conn) { _, _ = io.Copy(c, c) })
			if err != nil {
				t.Fatal(err)
			}
			if conn, err := b.Dial(t.Context(), p.Number); err == nil {
				_, _ = conn.Write([]byte("x"))
				_ = conn.Close()
			}
			_, _ = p.Close(), c.Close()
		}
	}
	some(0, 40) // more than a session remembers
	before := settled(t, b)
	some(1, 100)
	after := settled(t, b)
	// Copying between sockets goes through pipes that Go keeps in a pool until
	// it collects garbage: a few. A leak would be one or more a round.
	if after.goroutines > before.goroutines+4 || after.descriptors > before.descriptors+40 {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}

// A deadline that falls at the same time as everything else.
func TestChurn(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	whole := t.Context()
	ctx, stop := context.WithTimeout(whole, 2*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for i := range 8 {
		c := b.Shell(fmt.Sprint("s", i))
		wg.Go(func() {
			for ctx.Err() == nil {
				short, cancel := context.WithTimeout(ctx, time.Duration(i)*3*time.Millisecond)
				_, _ = c.Exec(short, sandbox.Command{Argv: []string{"sh", "-c", "setsid sleep 0.01 & echo x; sleep 0.005"}, Timeout: 4 * time.Millisecond})
				cancel()
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = b.Freeze(whole)
			_ = b.Thaw(whole)
			_ = b.Detach(whole, "s7")
			_, _ = b.Processes(whole)
			time.Sleep(3 * time.Millisecond) // so that commands run between two freezes
		}
	})
	wg.Wait()
	if err := serves(t, b.Shell("after")); err != nil {
		t.Error(err)
	}
	if _, err := b.Quiesce(t.Context()); err != nil {
		t.Error(err)
	}
}

// os/exec waits for its children itself, and would take the reaper's.
func TestWhatIsLinked(t *testing.T) {
	t.Parallel()
	if _, err := build.Default.ImportDir(".", 0); err != nil {
		t.Skip("the source is not here: run the test in the tree")
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/berth-eval/berth/cmd/berth-sandboxd").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	deps := strings.Fields(string(out))
	for _, bad := range []string{"os/exec", "github.com/hashicorp/hcl/v2", "github.com/hashicorp/go-plugin", "testing"} {
		if slices.Contains(deps, bad) {
			t.Errorf("berth-sandboxd links %s", bad)
		}
	}
}
