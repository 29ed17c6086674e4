// Package sandboxtest gives tests a real sandbox without an environment plugin:
// namespaces with the host's own programs, read-only, and sandboxd as PID 1.
// The test binary itself runs inside, so a test package must begin with
//
//	func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }
//
// It works for root and for ordinary users. It skips a test, with the reason,
// if the kernel allows no namespaces. It is for tests only: its sandboxes are
// not safe for an agent.
package sandboxtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/become"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
)

// initName is argv[0] of the process that builds a sandbox.
const initName = "berth-sandboxtest-init"

// Inside is what a test binary does in a sandbox in addition to being sandboxd.
type Inside struct {
	// Before is called in sandboxd before it begins, with Options.Without.
	Before func(without []string)
	// Programs can be run in the sandbox, see Program. If one returns an error,
	// the error is printed and the exit code is 1. "listen" always exists: with a
	// network and an address it prints where it listens, and sends back what it
	// gets.
	Programs map[string]func(args []string) error
}

// programFlag is the first argument of a test binary that runs as a program.
const programFlag = "-berth-program"

// Program returns the command line that runs one of Inside.Programs in a
// sandbox.
func Program(name string, args ...string) []string {
	return append([]string{sandboxd.Path, programFlag, name}, args...)
}

// Main runs the tests, by m.Run. In a process that a test started, it becomes the
// first process of a sandbox or a program in it. The caller exits with the returned
// code.
func Main(run func() int, in Inside) int {
	var err error
	switch {
	case os.Args[0] == initName:
		err = inside()
	case os.Args[0] == become.RunName:
		if b, e := os.ReadFile("/berth/without"); e == nil && in.Before != nil {
			in.Before(strings.Fields(string(b)))
		}
		err = sandboxd.Main(os.Args)
	case len(os.Args) > 2 && os.Args[1] == programFlag:
		if program := in.Programs[os.Args[2]]; program != nil {
			err = program(os.Args[3:])
		} else {
			err = listen(os.Args[3], os.Args[4])
		}
	default:
		return run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// listen is the program "listen".
func listen(network, address string) error {
	if network == "udp" {
		c, err := net.ListenPacket(network, address) //nolint:noctx // ends with the process
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, c.LocalAddr())
		_, _, err = c.ReadFrom(make([]byte, 1))
		return err
	}
	l, err := net.Listen(network, address) //nolint:noctx // ends with the process
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// Options say what kind of sandbox a test needs. The zero value is the best
// that the machine supports: many user ids for root, one for an ordinary user.
type Options struct {
	// ManyIDs skips the test if there are not many user ids. OneID wants one,
	// also for root.
	ManyIDs, OneID bool
	// Processes limits the number of processes; 0: no limit.
	Processes int
	// SizeMiB limits everything that can be written; 0 is 256.
	SizeMiB int
	// Lease of the connection; 0 is a minute.
	Lease time.Duration
	// Binary is the sandboxd to use; empty is the test binary.
	Binary string
	// Entrypoint starts sandboxd as an engine does, with capabilities and an
	// environment that it has to drop by itself.
	Entrypoint bool
	// NoOwnCap starts sandboxd with no capability that commands cannot get.
	NoOwnCap bool
	// Stream connects over one byte stream instead of a control folder.
	Stream bool
	// Plain starts sandboxd as the namespace's root with all capabilities, to
	// show the damage that dropping them prevents.
	Plain bool
	// Writable mounts the control folder writable, for every user.
	Writable bool
	// Beside is called with the control folder before the sandbox starts.
	Beside func(folder string) `json:"-"`
	// Without is passed to Inside.Before.
	Without []string
	// Unconnected leaves Sandbox nil: the test connects by itself, from
	// Folder.
	Unconnected bool
}

// Box is a running sandbox.
type Box struct {
	*host.Sandbox
	Folder *host.Folder // nil with Options.Stream
	Init   int          // pid of sandboxd, outside the sandbox

	tb testing.TB
}

var slots atomic.Int64

// Start makes a sandbox that ends with the test.
func Start(tb testing.TB, o Options) *Box {
	tb.Helper()
	if o.ManyIDs && os.Geteuid() != 0 {
		tb.Skip("only root has many user ids without a range of subordinate ids: run the tests as root")
	}
	// Not tb.TempDir, because a socket's path must be short.
	dir, err := os.MkdirTemp("", "bs")
	must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &Box{tb: tb}
	o.Lease, o.SizeMiB = cmp.Or(o.Lease, time.Minute), cmp.Or(o.SizeMiB, 256)
	if o.Binary == "" {
		o.Binary, err = os.Executable()
		must(tb, err)
	}
	b.Folder, err = host.NewFolder(filepath.Join(dir, "c"), o.Binary)
	must(tb, err)
	without := filepath.Join(b.Folder.Path, "without")
	must(tb, os.WriteFile(without, []byte(strings.Join(o.Without, "\n")), 0o600))
	must(tb, os.Chmod(without, 0o644))
	if o.Beside != nil {
		o.Beside(b.Folder.Path)
	}
	if o.Writable {
		must(tb, os.Chmod(b.Folder.Path, 0o777))
	}
	stream := b.start(o)
	if o.Unconnected {
		return b
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	if o.Stream {
		b.Sandbox, err = host.ConnectStream(ctx, stream, o.Lease)
	} else {
		b.Sandbox, err = host.Connect(ctx, b.Folder, b.Init, o.Lease)
	}
	must(tb, err)
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Errorf("close the test's sandbox: %v", err)
		}
	})
	return b
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("the test's sandbox: %v", err)
	}
}

// start runs the building process up to sandboxd.
func (b *Box) start(o Options) (stream net.Conn) {
	b.tb.Helper()
	channel, inner := b.pair(unix.SOCK_SEQPACKET)
	stream, theirs := b.pair(unix.SOCK_STREAM)
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // it ends with the test
	cmd.Args, cmd.Env, cmd.Dir = []string{initName}, []string{"GOMAXPROCS=1"}, "/"
	cmd.Stderr = os.Stderr
	if o.Stream {
		cmd.Stdin, cmd.Stdout = theirs, theirs
	}
	cmd.ExtraFiles = []*os.File{inner}
	cmd.SysProcAttr = attributes(o)
	err := cmd.Start()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		testlevel.Cannot(b.tb, testlevel.NoNamespaces, err)
	}
	must(b.tb, err)
	b.Init = cmd.Process.Pid
	b.tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_, _ = inner.Close(), theirs.Close()
	var fds []int
	if os.Geteuid() == 0 { // the sandbox's ids could not enter our folder
		fd, wrong := unix.OpenTree(unix.AT_FDCWD, b.Folder.Path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if wrong != nil {
			testlevel.Cannot(b.tb, "this kernel makes no detached mounts: Linux 5.2 or newer does", wrong)
		}
		defer unix.Close(fd) //nolint:errcheck // the sandbox has its own
		fds = append(fds, fd)
	}
	data, err := json.Marshal(plan{o, b.Folder.Path})
	must(b.tb, err)
	_, _, err = channel.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
	must(b.tb, err)
	_ = channel.SetReadDeadline(time.Now().Add(2 * time.Minute))
	text, err := io.ReadAll(channel)
	must(b.tb, err)
	if strings.HasPrefix(string(text), "proc:") && strings.Contains(string(text), "operation not permitted") {
		testlevel.Cannot(b.tb, "/proc is masked here: run the tests outside of a container", string(text))
	}
	if len(text) > 0 {
		b.tb.Fatalf("build the test's sandbox: %s", text)
	}
	_ = channel.Close()
	return stream
}

// attributes returns the attributes of the clone into new namespaces.
func attributes(o Options) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
		Pdeathsig: syscall.SIGKILL, Setsid: true,
	}
	first, count := os.Geteuid(), 1
	group := os.Getegid()
	if os.Geteuid() == 0 {
		const perSandbox, base = 1 << 16, 1 << 30 // above what distributions hand out
		count = perSandbox
		first = base + int(slots.Add(1)%1024+int64(os.Getpid()%8)*1024)*perSandbox
		group = first
		if o.OneID {
			count = 1
		}
		a.Credential = &syscall.Credential{}
		a.GidMappingsEnableSetgroups = true
	}
	a.UidMappings = []syscall.SysProcIDMap{{HostID: first, Size: count}}
	a.GidMappings = []syscall.SysProcIDMap{{HostID: group, Size: count}}
	return a
}

// pair returns both ends of a pair of sockets.
func (b *Box) pair(kind int) (ours *net.UnixConn, theirs *os.File) {
	b.tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	must(b.tb, err)
	f := os.NewFile(uintptr(fds[0]), "pair")
	defer f.Close()
	c, err := net.FileConn(f)
	must(b.tb, err)
	return c.(*net.UnixConn), os.NewFile(uintptr(fds[1]), "pair") //nolint:forcetypeassert // of a Unix socket
}

// Shell returns a client of the session with that name, as root at /.
func (b *Box) Shell(session string) *sandbox.Client {
	b.tb.Helper()
	return b.ShellOf(host.Session{ID: session})
}

// ShellOf returns a client of a session.
func (b *Box) ShellOf(who host.Session) *sandbox.Client {
	b.tb.Helper()
	c, err := b.Sandbox.Shell(b.tb.Context(), who)
	must(b.tb, err)
	b.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Alive reports whether sandboxd is alive.
func (b *Box) Alive() bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.Init))
	_, rest, _ := strings.Cut(string(data), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}
