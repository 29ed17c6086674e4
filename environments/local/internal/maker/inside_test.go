package maker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/environments/local/internal/base"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// The test binary plays sandboxd: the control folder of a test's sandbox holds
// it under that name, and it runs the commands that come over the socket. What
// is tested here is what the sandbox is made of, not sandboxd.

func TestMain(m *testing.M) {
	if os.Args[0] == become.RunName {
		playSandboxd()
		return
	}
	os.Exit(modetest.Main(m, "../../local-init"))
}

type command struct {
	Argv []string
	UID  int // 0: root
}

type answer struct {
	Out string // stdout and stderr
	Err string // empty: ended with 0
}

// playSandboxd serves until the socket closes.
func playSandboxd() {
	runtime.LockOSThread()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: "/berth/sock", Net: "unix"})
	if err != nil {
		os.Exit(1)
	}
	_ = os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") // for the look-up of programs
	in, out := json.NewDecoder(c), json.NewEncoder(c)
	for {
		var q command
		if in.Decode(&q) != nil {
			os.Exit(0)
		}
		cmd := exec.CommandContext(context.Background(), q.Argv[0], q.Argv[1:]...)
		cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "LC_ALL=C"}
		if !become.OneID() {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(q.UID), Gid: uint32(q.UID)}}
		}
		// As sandboxd does: what carried capabilities over its exec is not for
		// its children.
		if err := become.DropInheritable(); err != nil {
			os.Exit(1)
		}
		text, err := cmd.CombinedOutput()
		a := answer{Out: string(text)}
		if err != nil {
			a.Err = err.Error()
		}
		if out.Encode(a) != nil {
			os.Exit(0)
		}
	}
}

// rig is a maker with state of its own.
type rig struct {
	*Maker
	top string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	top, err := os.MkdirTemp("", "bl") //nolint:usetesting // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	cache, err := modetest.Cache()
	if err != nil {
		t.Fatal(err)
	}
	in := func(dir string) func() (string, error) { return func() (string, error) { return dir, nil } }
	m, err := New(modetest.Process, base.Places{Top: in(top), Cache: []func() (string, error){in(cache)}}, modetest.Init())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(top, "sandboxd"), text, 0o555)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		_ = os.RemoveAll(top)
	})
	return &rig{m, top}
}

// control makes a control folder with the test binary as sandboxd.
func (r *rig) control(t *testing.T) (folder string, l *net.UnixListener) {
	t.Helper()
	folder, err := os.MkdirTemp(r.top, "c") //nolint:usetesting // as above
	if err != nil {
		t.Fatal(err)
	}
	l, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(folder, "sock"), Net: "unix"})
	err = errors.Join(err, os.Link(filepath.Join(r.top, "sandboxd"), filepath.Join(folder, "sandboxd")),
		os.Chmod(filepath.Join(folder, "sock"), 0o666), os.Chmod(folder, 0o711))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return folder, l
}

// live is a sandbox that runs commands.
type live struct {
	Box
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// open makes a sandbox.
func (r *rig) open(t *testing.T, o Order) *live {
	t.Helper()
	var l *net.UnixListener
	o.Control, l = r.control(t)
	b, err := r.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.SetDeadline(time.Now().Add(20 * time.Second))
	c, err := l.Accept()
	if err != nil {
		t.Fatalf("sandboxd did not connect: %v", err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if _, err := r.Destroy(t.Context(), b.ID); err != nil && t.Context().Err() == nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return &live{Box: b, conn: c, in: json.NewDecoder(c), out: json.NewEncoder(c)}
}

// run runs a command as a user of the sandbox.
func (x *live) run(t *testing.T, uid int, argv ...string) answer {
	t.Helper()
	_ = x.conn.SetDeadline(time.Now().Add(60 * time.Second))
	var a answer
	if err := errors.Join(x.out.Encode(command{argv, uid}), x.in.Decode(&a)); err != nil {
		t.Fatalf("run %q: %v", argv, err)
	}
	return a
}

// sh runs a script as root, which must succeed, and returns what it printed.
func (x *live) sh(t *testing.T, script string) string {
	t.Helper()
	a := x.run(t, 0, "sh", "-c", script)
	if a.Err != "" {
		t.Errorf("%s\n%s%s", script, a.Out, a.Err)
	}
	return a.Out
}
