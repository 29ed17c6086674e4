package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// screen collects what a terminal says.
type screen struct {
	t    *testing.T
	term *sandbox.Terminal
	all  bytes.Buffer
}

// until reads until the text has come.
func (s *screen) until(text string) {
	s.t.Helper()
	b := make([]byte, 4096)
	stop := time.AfterFunc(time.Minute, func() { _ = s.term.Close() })
	defer stop.Stop()
	for !strings.Contains(s.all.String(), text) {
		at := s.term.Offset()
		n, err := s.term.Read(b)
		if err != nil {
			s.t.Fatalf("waiting for %q at %d: %v; it said %q", text, at, err, s.all.String())
		}
		s.all.Write(b[:n])
	}
}

func (s *screen) typed(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.term, text); err != nil {
		s.t.Fatal(err)
	}
}

func open(t *testing.T, c *sandbox.Client, spec sandbox.TerminalSpec) *screen {
	t.Helper()
	term, err := c.Terminal(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Close() })
	return &screen{t: t, term: term}
}

func TestTerminalIsOne(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	s := open(t, c, sandbox.TerminalSpec{ID: "t", Argv: []string{"sh", "-i"}, Env: []string{"PS1=$ "}, Rows: 33, Columns: 101})
	s.typed("tty && stty size && echo $TERM\n")
	s.until("/dev/pts/0")
	s.until("33 101")
	s.until("xterm-256color")
	if err := s.term.Resize(40, 120); err != nil {
		t.Fatal(err)
	}
	s.typed("stty size\n")
	s.until("40 120")
	s.typed("sleep 7200\n")
	testlevel.Eventually(t, "the job runs", func() bool { return running(t, b, "sleep 7200") })
	s.typed("\x03") // ends it: there is a foreground job
	s.until("^C")
	s.typed("echo inter''rupted\n")
	s.until("interrupted")
	s.typed("exit 9\n")
	rest, err := io.ReadAll(s.term)
	if r, ok := s.term.Result(); err != nil || !ok || r.ExitCode != 9 {
		t.Errorf("ended with %+v, %v, %v after %q", r, ok, err, rest)
	}
	if err := s.term.Resize(0, 3); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a size of 0 × 3: %v", err)
	}
}

func TestTerminalTellsTheJobOfItsSize(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	s := open(t, c, sandbox.TerminalSpec{ID: "t", Argv: []string{"sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done"}})
	s.until("ready")
	if err := s.term.Resize(50, 60); err != nil {
		t.Fatal(err)
	}
	s.until("50 60")
}

// Who comes back, on another connection, goes on at the byte where it was.
func TestTerminalIsJoinedByOffset(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	s := open(t, b.Shell("agent"), sandbox.TerminalSpec{ID: "t", Argv: []string{"sh", "-c", "stty -echo; echo first; read x; echo got $x; read x"}})
	s.until("first\r\n")
	at := s.term.Offset()
	_ = s.term.Close()
	if err := b.Detach(t.Context(), "agent"); err != nil {
		t.Fatal(err)
	}
	c := b.Shell("agent")
	again, err := c.JoinTerminal(t.Context(), "t", at)
	if err != nil || again.Offset() != at {
		t.Fatalf("joined at %d, %v; want %d", again.Offset(), err, at)
	}
	j := &screen{t: t, term: again}
	j.typed("input\n")
	j.until("got input\r\n")
	if strings.Contains(j.all.String(), "first") {
		t.Errorf("got %q again", j.all.String())
	}
	// From the beginning, which takes it over.
	whole, err := c.JoinTerminal(t.Context(), "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &screen{t: t, term: whole}
	w.until("first\r\ngot input\r\n")
	if _, err := io.ReadAll(again); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("the one who lost it got %v, want ErrGone", err)
	}
	if _, err := b.Shell("stranger").JoinTerminal(t.Context(), "t", 0); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("another session joined: %v", err)
	}
	if _, err := c.Terminal(t.Context(), sandbox.TerminalSpec{ID: "t", Argv: []string{"sh"}}); !errors.Is(err, sandbox.ErrExists) {
		t.Errorf("its id a second time: %v", err)
	}
	if err := c.Kill(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(whole); err != nil {
		t.Errorf("reading to the end of a killed terminal: %v", err)
	}
	if r, ok := whole.Result(); !ok || !r.Killed {
		t.Errorf("ended with %+v, %v", r, ok)
	}
}

func TestTerminalKeepsOnlyTheLastBytes(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	ctx, cancel := context.WithCancel(t.Context())
	term, err := c.Terminal(ctx, sandbox.TerminalSpec{ID: "t", Argv: []string{"sh", "-c", "stty raw -echo; head -c 2000000 /dev/zero | tr '\\0' x; echo END; sleep 7100"}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = term.Read(make([]byte, 10))
	cancel() // nobody reads from here on, and the terminal must not stand still
	var late *sandbox.Terminal
	testlevel.Eventually(t, "two megabytes have been written", func() bool {
		if late, err = c.JoinTerminal(t.Context(), "t", 0); err != nil {
			t.Fatal(err)
		}
		if late.Offset() >= 2_000_004-256<<10 {
			return true
		}
		_ = late.Close()
		return false
	})
	got := make([]byte, 256<<10)
	n, err := io.ReadFull(late, got)
	if err != nil || !strings.HasSuffix(string(got[:n]), "xEND\n") || late.Offset() != 2_000_004 {
		t.Errorf("got %d bytes ending in %q, %v, at %d", n, got[max(0, n-10):n], err, late.Offset())
	}
}
