package host_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

func TestHelloSaysWhatThePlaceGives(t *testing.T) {
	t.Parallel()
	one := sandboxtest.Start(t, sandboxtest.Options{OneID: true})
	if !strings.Contains(strings.Join(one.Hello.Findings, "; "), "one user id only") {
		t.Errorf("one id: %+v", one.Hello)
	}
	many := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: true})
	if len(many.Hello.Findings) != 0 || many.Hello.BoundingCapabilities == 0 {
		t.Errorf("many ids: %+v", many.Hello)
	}
	plain := sandboxtest.Start(t, sandboxtest.Options{Plain: true})
	if !strings.Contains(strings.Join(plain.Hello.Findings, "; "), "beyond an engine's default") {
		t.Errorf("all capabilities: %+v", plain.Hello)
	}
}

func TestSandboxEndsWithTheCore(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	begin(t, b.Shell("agent"), "x", "sh", "-c", "trap '' TERM HUP; echo up; while :; do sleep 1; done")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	testlevel.Eventually(t, "PID 1 ends", func() bool { return !b.Alive() })
	select {
	case <-b.Lost():
	default:
		t.Error("Lost is open after Close")
	}
}

// A core that hangs, or a host that is cut off, leaves no sandbox behind.
func TestSandboxEndsWithItsLease(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{Lease: 6 * time.Second})
	time.Sleep(7 * time.Second) // longer than the lease, in a process whose clock is real
	if !b.Alive() || b.Err() != nil {
		t.Fatalf("the sandbox ended although its lease was renewed: %v", b.Err())
	}
	b.StopRenewing()
	select {
	case <-b.Lost():
	case <-time.After(time.Minute):
		t.Fatal("the sandbox outlived its lease")
	}
	testlevel.Eventually(t, "PID 1 ends", func() bool { return !b.Alive() })
	if !errors.Is(b.Err(), sandbox.ErrGone) {
		t.Errorf("lost because %v, want ErrGone", b.Err())
	}
	if _, err := b.Processes(t.Context()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("a call after that: %v, want ErrGone", err)
	}
}

func TestOverOneByteStream(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{Stream: true})
	c := b.Shell("agent")
	var out bytes.Buffer
	in := bytes.Repeat([]byte("0123456789"), 1<<20)
	if r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"cat"}, Stdin: bytes.NewReader(in), Stdout: &out}); err != nil || !r.OK() || !bytes.Equal(out.Bytes(), in) {
		t.Errorf("10 MiB through cat: %+v, %v, %d bytes", r, err, out.Len())
	}
	if err := b.Detach(t.Context(), "agent"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat(t.Context(), "/"); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("after Detach: %v", err)
	}
	echoThroughPorts(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	testlevel.Eventually(t, "PID 1 ends", func() bool { return !b.Alive() })
}

// echoThroughPorts uses a port in each direction.
func echoThroughPorts(t *testing.T, b *sandboxtest.Box) {
	t.Helper()
	ctx := t.Context()
	p, err := b.Listen(ctx, 0, func(c net.Conn) { _, _ = io.Copy(c, c); _ = c.Close() })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	in, err := b.Dial(ctx, p.Number) // into the sandbox, to the port, and out again
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	data := bytes.Repeat([]byte("abcdefghij"), 200_000)
	go func() {
		_, _ = in.Write(data)
		if h, ok := in.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	}()
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back, %v; want %d", len(got), err, len(data))
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx := t.Context()
	echoThroughPorts(t, b)
	if _, err := b.Dial(ctx, 9); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("dialing nobody: %v, want ErrNotFound", err)
	}
	begin(t, b.Shell("agent"), "server", sandboxtest.Program("listen", "tcp", "127.0.0.1:8500")...)
	if _, err := b.Listen(ctx, 8500, func(net.Conn) {}); !errors.Is(err, sandbox.ErrExists) {
		t.Errorf("a port that is taken: %v, want ErrExists", err)
	}
	// Closing a port ends what is open on it.
	hanging := make(chan error, 1)
	p, err := b.Listen(ctx, 0, func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		hanging <- err
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := b.Dial(ctx, p.Number)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	testlevel.Eventually(t, "it is connected", func() bool { return len(list(t, b).List) > 0 })
	time.Sleep(50 * time.Millisecond) // most likely in the read by now; both orders must work
	if err = p.Close(); err != nil {
		t.Fatal(err)
	}
	if err = <-hanging; err == nil {
		t.Error("a connection survived its port")
	}
	testlevel.Eventually(t, "nobody listens any more", func() bool { _, err := b.Dial(ctx, p.Number); return errors.Is(err, sandbox.ErrNotFound) })
}

// What cannot be sandboxd is not taken for it.
func TestImpostorsAreRefused(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		pid  int
		dial func(path string)
		want string
	}{
		"another process": {1, func(path string) { say(path, stream.Label{Kind: stream.Control}, nil) }, "not sandboxd"},
		"another order":   {0, func(path string) { say(path, stream.Label{Kind: stream.Supply}, nil) }, "kind"},
		"no label":        {0, func(path string) { say(path, stream.Label{}, []byte("GET / HTTP/1.1\r\n\r\n------------")) }, "not a label"},
		"a refusal":       {1, func(path string) { say(path, stream.Label{}, []byte("brt1X0123456789abcdefthis is process 2")) }, `does not serve there: "this is process 2"`},
		"nobody":          {0, func(string) {}, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "bs")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			f, err := host.NewFolder(filepath.Join(dir, "c"), self)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			go tt.dial(filepath.Join(f.Path, "sock"))
			limit := time.Minute
			if name == "nobody" {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err = host.Connect(ctx, f, tt.pid, time.Minute)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func say(path string, l stream.Label, raw []byte) {
	c, err := net.Dial("unix", path) //nolint:noctx // a socket of this test
	if err != nil {
		return
	}
	if raw != nil {
		_, _ = c.Write(raw)
	} else {
		_ = l.Send(c)
	}
	_, _ = io.Copy(io.Discard, c) // until the host closes it
	_ = c.Close()
}

func TestControlFolder(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "bs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	copied, digest, err := host.Install(filepath.Join(dir, "bin"), self)
	if err != nil || len(digest) != 64 {
		t.Fatalf("install: %v, digest %q", err, digest)
	}
	if again, _, failed := host.Install(filepath.Join(dir, "bin"), self); failed != nil || again != copied {
		t.Errorf("a second time: %s, %v", again, failed)
	}
	f, err := host.NewFolder(filepath.Join(dir, "c"), copied)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := os.Stat(copied)
	l, errL := os.Stat(filepath.Join(f.Path, "sandboxd"))
	folder, errF := os.Stat(f.Path)
	if err := errors.Join(errA, errL, errF); err != nil || !os.SameFile(a, l) || l.Mode().Perm() != 0o555 || folder.Mode().Perm() != 0o711 {
		t.Errorf("the folder has mode %v, sandboxd %v, the same file: %v, %v", folder.Mode(), l.Mode(), os.SameFile(a, l), err)
	}
	if _, err := host.NewFolder(filepath.Join(dir, strings.Repeat("long", 30)), copied); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a long path: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := host.NewFolder(filepath.Join(dir, "d"), copied); err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("a parent that is open: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
