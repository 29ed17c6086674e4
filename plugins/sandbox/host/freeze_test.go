package host_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func TestNothingMovesWhileFrozen(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx, c := t.Context(), b.Shell("agent")
	begin(t, c, "busy", "sh", "-c", "echo up; while :; do echo x >> /tmp/count; (sleep 0.001 &) ; done")
	begin(t, c, "stopped", "sh", "-c", "echo up; kill -STOP $$; echo continued > /tmp/continued")
	testlevel.Eventually(t, "one has stopped by itself", func() bool {
		p := find(list(t, b).List, "kill -STOP")
		return len(p) == 1 && p[0].State == "T"
	})
	testlevel.Eventually(t, "the other writes", func() bool { _, missing := c.Stat(ctx, "/tmp/count"); return missing == nil })
	f, err := b.Freeze(ctx)
	if err != nil || f.Stopped < 2 {
		t.Fatalf("freeze: %+v, %v", f, err)
	}
	size := func() int {
		data, failed := c.ReadFile(ctx, "/tmp/count", 1<<20) // files can be read
		if failed != nil {
			t.Fatal(failed)
		}
		return len(data)
	}
	before := size()
	if _, err = c.Exec(ctx, sandbox.Command{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrFrozen) {
		t.Errorf("a command while frozen: %v, want ErrFrozen", err)
	}
	if _, err = c.Terminal(ctx, sandbox.TerminalSpec{ID: "t", Argv: []string{"sh"}}); !errors.Is(err, sandbox.ErrFrozen) {
		t.Errorf("a terminal while frozen: %v, want ErrFrozen", err)
	}
	if f, err = b.Freeze(ctx); err != nil || len(f.Moved) > 0 {
		t.Errorf("a second freeze: %+v, %v", f, err)
	}
	time.Sleep(50 * time.Millisecond) // nothing tells that nothing is written
	if f, err = b.Freeze(ctx); err != nil || len(f.Moved) > 0 {
		t.Errorf("a third freeze: %+v, %v", f, err)
	}
	if after := size(); after != before {
		t.Errorf("%d bytes were written while frozen", after-before)
	}
	if err = b.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	testlevel.Eventually(t, "it goes on", func() bool { return size() > before })
	if p := find(list(t, b).List, "kill -STOP"); len(p) != 1 || p[0].State != "T" {
		t.Errorf("what was stopped before is %+v, want it still stopped", p)
	}
	if _, err := c.Terminal(ctx, sandbox.TerminalSpec{ID: "t", Argv: []string{"sh"}}); err != nil {
		t.Errorf("a terminal after thaw: %v", err)
	}
}

// Stopping children first, or all at once, makes an interactive shell say
// "Stopped" and take the terminal from its job.
func TestFreezeDoesNotDisturbATerminal(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx := t.Context()
	term, err := b.Shell("agent").Terminal(ctx, sandbox.TerminalSpec{ID: "t", Argv: []string{"bash", "--norc", "-i"}, Env: []string{"PS1=$ "}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said strings.Builder
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(writer(func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			said.Write(b)
		}), term)
	}()
	all := func() string {
		mu.Lock()
		defer mu.Unlock()
		return said.String()
	}
	_, _ = term.Write([]byte("cat\n"))
	testlevel.Eventually(t, "cat runs", func() bool { return len(find(list(t, b).List, "cat")) == 1 })
	for range 30 {
		if _, err := b.Freeze(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Thaw(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // the shell looks at its children now
	}
	_, _ = term.Write([]byte("still here\n"))
	testlevel.Eventually(t, "cat answers", func() bool { return strings.Count(all(), "still here") == 2 })
	if strings.Contains(all(), "Stopped") {
		t.Errorf("the shell said %q", all())
	}
	_, _ = term.Write([]byte("\x04exit\n"))
	<-ended
}

// Frozen time is charged to nobody.
func TestTimeoutStandsStillWhileFrozen(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx := t.Context()
	type outcome struct {
		r   sandbox.Result
		err error
	}
	done, up, c := make(chan outcome, 1), make(chan struct{}), b.Shell("agent")
	var once sync.Once
	go func() {
		r, err := c.Exec(ctx, sandbox.Command{
			Argv: []string{"sh", "-c", "echo up; read x < /dev/null; sleep 0.2; echo done"}, Timeout: 5 * time.Second,
			Stdout: writer(func([]byte) { once.Do(func() { close(up) }) }),
		})
		done <- outcome{r, err}
	}()
	<-up
	if _, err := b.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5200 * time.Millisecond) // longer than the command's timeout, in a process whose clock is real
	if err := b.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	if o := <-done; o.err != nil || !o.r.OK() {
		t.Errorf("got %+v, %v; the timeout ran while frozen", o.r, o.err)
	}
}
