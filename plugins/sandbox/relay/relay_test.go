package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

// place makes a folder for a socket, with a short path.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "br")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// session makes a relay of a real sandbox, and a client such as a plugin has.
func session(t *testing.T) (*sandboxtest.Box, *relay.Relay, *sandbox.Client) {
	t.Helper()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	r, err := relay.New(place(t), relay.Of(b.Sandbox, host.Session{ID: "agent", Dir: "/app"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Shut(context.WithoutCancel(t.Context())) })
	c, err := sandbox.Dial(r.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return b, r, c
}

func works(t *testing.T, c *sandbox.Client) error {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Exec(ctx, sandbox.Command{Argv: []string{"pwd"}, Stdout: &out}); err != nil {
		return err
	}
	if out.String() != "/app\n" {
		return errors.New("said " + out.String())
	}
	return nil
}

// The address stays the same from turn to turn; access does not.
func TestOpenOnlyDuringTurns(t *testing.T) {
	t.Parallel()
	_, r, c := session(t)
	ctx := t.Context()
	for turn := range 3 {
		if err := works(t, c); !errors.Is(err, sandbox.ErrRevoked) {
			t.Errorf("before turn %d: %v, want ErrRevoked", turn, err)
		}
		if err := r.Open(ctx); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(works(t, c), r.Open(ctx), works(t, c)); err != nil {
			t.Errorf("in turn %d: %v", turn, err)
		}
		if err := errors.Join(r.Close(ctx), r.Close(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Open(ctx); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Shut(ctx), r.Shut(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := works(t, c); !errors.Is(err, sandbox.ErrRevoked) {
		t.Errorf("after the last turn: %v, want ErrRevoked", err)
	}
	if _, err := os.Stat(strings.TrimPrefix(r.Address(), "unix:")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := r.Open(ctx); err == nil {
		t.Error("opened after Shut")
	}
}

// A stream that is open when access is revoked carries nothing more in either
// direction. Its command is not killed by this; others decide that.
func TestRevocationEndsAnOpenStream(t *testing.T) {
	t.Parallel()
	b, r, c := session(t)
	ctx := t.Context()
	if err := r.Open(ctx); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	said, last := 0, time.Time{}
	ended := make(chan error, 1)
	in, typing := io.Pipe()
	go func() {
		_, err := c.Exec(ctx, sandbox.Command{
			Argv: []string{"sh", "-c", "yes & cat > /tmp/typed; sleep 9001"}, Stdin: in,
			Stdout: writer(func(p []byte) {
				mu.Lock()
				defer mu.Unlock()
				said, last = said+len(p), time.Now()
			}),
		})
		ended <- err
	}()
	_, _ = typing.Write([]byte("before\n"))
	own, err := b.Sandbox.Shell(ctx, host.Session{ID: "core"})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	typed := func() string {
		data, _ := own.ReadFile(ctx, "/tmp/typed", 1000)
		return string(data)
	}
	testlevel.Eventually(t, "both directions carry", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return said > 1<<20 && typed() == "before\n"
	})
	if err = r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	go func() { _, _ = typing.Write([]byte("after\n")) }()
	if err = <-ended; !errors.Is(err, sandbox.ErrRevoked) {
		t.Errorf("the call ended with %v, want ErrRevoked", err)
	}
	mu.Lock()
	if last.After(closed.Add(5 * time.Second)) { // bytes that arrived before may still be passed to the writer, which a busy machine delays
		t.Errorf("output came %v after Close", last.Sub(closed))
	}
	mu.Unlock()
	time.Sleep(50 * time.Millisecond) // nothing tells that input does not pass
	if got := typed(); got != "before\n" {
		t.Errorf("input passed after Close: %q", got)
	}
	ps, err := b.Processes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	alive := 0
	for _, p := range ps.List {
		if strings.Contains(strings.Join(p.Argv(), " "), "sleep 9001") && p.State != "Z" {
			alive++
		}
	}
	if alive == 0 {
		t.Error("revoking killed the command")
	}
}

// Everything that a command has written when access is cut reaches its client,
// including what is still in the pipe, and the client learns that it is
// complete. A client that does not read delays nothing.
func TestTheLastWordsAreHeard(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		b, r, c := session(t)
		ctx := t.Context()
		if err := r.Open(ctx); err != nil {
			t.Fatal(err)
		}
		own, err := b.Sandbox.Shell(ctx, host.Session{ID: "core"})
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		// More than a client that does not read is sent, and less than that
		// plus the content of the pipe.
		const lines = 700_000
		cut := make(chan struct{})
		said := make([]byte, 0, 8<<20)
		ended := make(chan error, 1)
		go func() {
			_, execErr := c.Exec(ctx, sandbox.Command{
				Argv: []string{"sh", "-c", fmt.Sprintf("seq 1 %d; touch /tmp/all; sleep 9002", lines)},
				Stdout: writer(func(p []byte) {
					<-cut
					said = append(said, p...)
				}),
			})
			ended <- execErr
		}()
		testlevel.Eventually(t, "all is written", func() bool {
			_, statErr := own.Stat(ctx, "/tmp/all")
			return statErr == nil
		})
		if !deaf {
			close(cut)
		}
		if err = r.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if deaf {
			close(cut)
		}
		err = <-ended
		if !errors.Is(err, sandbox.ErrRevoked) {
			t.Errorf("the call ended with %v, want ErrRevoked", err)
		}
		if deaf {
			continue
		}
		if !strings.Contains(err.Error(), "cut") {
			t.Errorf("nobody said that this is all: %v", err)
		}
		if got := bytes.Count(said, []byte("\n")); got != lines {
			t.Errorf("%d lines arrived, want %d; the last is %q", got, lines, said[max(0, len(said)-20):])
		}
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// fake is a sandbox whose connections are pipes made by the test.
type fake struct {
	attach chan net.Conn
	hold   chan struct{} // Attach waits for it
	detach error

	mu     sync.Mutex
	inside []net.Conn
}

func (f *fake) Attach(ctx context.Context) (net.Conn, error) {
	select {
	case <-f.hold:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ours, theirs := net.Pipe()
	f.mu.Lock()
	f.inside = append(f.inside, theirs)
	f.mu.Unlock()
	f.attach <- theirs
	return ours, nil
}

func (f *fake) Detach(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.inside {
		if f.detach == nil {
			_ = c.Close()
		}
	}
	return f.detach
}

// Access is revoked while a connection is being attached: its call is refused, and
// nothing is left running.
func TestCloseDuringAttach(t *testing.T) {
	t.Parallel()
	f := &fake{attach: make(chan net.Conn, 10), hold: make(chan struct{})}
	r, err := relay.New(place(t), f)
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := slowToSeeTheEnd(t, r, 0)
	call := make(chan error, 1)
	go func() {
		_, err := sandbox.Over(conn).Stat(t.Context(), "/")
		call <- err
	}()
	time.Sleep(20 * time.Millisecond) // most likely in the call by now; both orders must work
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-call; !errors.Is(err, sandbox.ErrRevoked) {
		t.Errorf("the call ended with %v, want ErrRevoked", err)
	}
	if err := r.Shut(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// slowToSeeTheEnd returns a client that learns late that a connection has ended,
// such as one on a busy machine.
func slowToSeeTheEnd(t *testing.T, r *relay.Relay, late time.Duration) *grpc.ClientConn {
	t.Helper()
	path := strings.TrimPrefix(r.Address(), "unix:")
	conn, err := stream.ClientOn(path, func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		return slow{c, late}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

type slow struct {
	net.Conn

	late time.Duration
}

func (s slow) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err != nil {
		time.Sleep(s.late) // it is the slow end of this test
	}
	return n, err
}

// A turn that begins as soon as the last one has ended finds no client on a
// connection of the last one.
func TestTheFirstCallOfTheNextTurnReachesTheSandbox(t *testing.T) {
	t.Parallel()
	_, r, _ := session(t)
	c := sandbox.Over(slowToSeeTheEnd(t, r, 100*time.Millisecond))
	for turn := range 5 {
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := works(t, c); err != nil {
			t.Errorf("turn %d: %v", turn, err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls between two turns are refused, however close they are to the next one, and
// do not disturb it.
func TestCallsBetweenTurnsDoNotDisturbTheNextOne(t *testing.T) {
	t.Parallel()
	_, r, c := session(t)
	for turn := range 300 {
		var between sync.WaitGroup
		between.Go(func() { _ = works(t, c) })
		time.Sleep(time.Duration(turn%30) * 100 * time.Microsecond) // each turn begins at another moment of the call
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := works(t, c); err != nil {
			t.Errorf("turn %d: %v", turn, err)
		}
		between.Wait()
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// The error of Detach is returned, and access has ended anyway.
func TestDetachFails(t *testing.T) {
	t.Parallel()
	f := &fake{attach: make(chan net.Conn, 10), hold: make(chan struct{}), detach: errors.New("sandbox is lost")}
	close(f.hold)
	r, err := relay.New(place(t), f)
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", strings.TrimPrefix(r.Address(), "unix:"))
	if err != nil {
		t.Fatal(err)
	}
	inside := <-f.attach
	if err := r.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "sandbox is lost") {
		t.Errorf("got %v", err)
	}
	for _, end := range []net.Conn{c, inside} {
		if _, err := end.Read(make([]byte, 1)); err == nil {
			t.Error("a byte passed after Close")
		}
	}
	if err := r.Shut(t.Context()); err != nil {
		t.Error(err)
	}
}
