package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// What is shown here is the built plugin as the host starts it.

func TestMain(m *testing.M) {
	os.Exit(modetest.Started(m, ".", "./local-init", "../../cmd/berth-sandboxd"))
}

// started is one process of the plugin, or two in mode "ranges".
type started struct {
	environment.Environment
	client *goplugin.Client
	pid    int // of the process that we started
	top    string
}

// dispenser takes the connection out of go-plugin.
type dispenser struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (dispenser) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host")
}

func (dispenser) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

// start starts the plugin as the core does. top is its state's place, shared by
// several when they are to know of each other; change may change the command.
func start(t *testing.T, top string, change func(*exec.Cmd)) *started {
	t.Helper()
	cache, err := modetest.Cache()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(modetest.Tools, "local"))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + top, "XDG_CACHE_HOME=" + cache,
		"PLUGIN_UNIX_SOCKET_DIR=" + top,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if change != nil {
		change(cmd)
	}
	c := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: plugins.CookieKey, MagicCookieValue: plugins.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{plugins.Protocol: {plugins.SetName: &dispenser{}}},
		Cmd:              cmd, SkipHostEnv: true, AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger: hclog.NewNullLogger(),
	})
	t.Cleanup(c.Kill)
	protocol, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := protocol.Dispense(plugins.SetName)
	if err != nil {
		t.Fatal(err)
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		t.Fatalf("dispensed a %T", raw)
	}
	list, err := plugins.Describe(t.Context(), fault.Client(conn))
	if err != nil || len(list) != 1 || list[0].Name != "local" || list[0].Kind != plugins.KindEnvironment {
		t.Fatalf("describe: %+v, %v", list, err)
	}
	return &started{
		Environment: environment.NewClient(fault.Client(conn), "local"),
		client:      c, pid: cmd.Process.Pid, top: top,
	}
}

// folder is a short folder of ours, as for a runtime place.
func folder(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("", "bl") //nolint:usetesting // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	return top
}

// box is a sandbox with a core.
type box struct {
	environment.Sandbox
	core  *host.Sandbox
	shell *sandbox.Client
}

func (s *started) open(t *testing.T, name string, spec environment.Spec) *box {
	t.Helper()
	f, err := host.NewFolder(filepath.Join(s.top, name), filepath.Join(modetest.Tools, "berth-sandboxd"))
	if err != nil {
		t.Fatal(err)
	}
	spec.Control, spec.Lease = f.Path, time.Minute
	if spec.Network.Mode == "" {
		spec.Network.Mode = environment.NetworkNone
	}
	b := &box{}
	if b.Sandbox, err = s.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if b.core, err = host.Connect(t.Context(), f, b.PID, spec.Lease); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = s.Destroy(context.WithoutCancel(t.Context()), b.ID) // fails where the plugin was killed
		_ = errors.Join(b.core.Close(), f.Close())
	})
	if b.shell, err = b.core.Shell(t.Context(), host.Session{ID: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.shell.Close() })
	return b
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	testlevel.Eventually(t, fmt.Sprintf("process %d has ended", pid), func() bool {
		_, err := ids.Started(pid)
		return errors.Is(err, unix.ESRCH)
	})
}

// children are the processes below this one, without those that have ended.
func children(t *testing.T) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ids.Started(pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// nothingMore waits until there are no more children than before.
func nothingMore(t *testing.T, before []int) {
	t.Helper()
	testlevel.Eventually(t, "no process of the plugin is left", func() bool { return len(children(t)) <= len(before) })
}

// The plugin is killed while it makes sandboxes, at every point of that.
func TestKilledAtAnyInstantLeavesNoProcess(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		// What it leaves becomes our child.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
		top := folder(t)
		for delay := range 12 {
			before := children(t)
			s := start(t, top, nil)
			var work sync.WaitGroup
			for i := range 4 {
				f, err := host.NewFolder(filepath.Join(top, fmt.Sprintf("k%d.%d", delay, i)), filepath.Join(modetest.Tools, "berth-sandboxd"))
				if err != nil {
					t.Fatal(err)
				}
				spec := environment.Spec{
					Labels: environment.Labels{Owner: "instant"}, Network: environment.Network{Mode: environment.NetworkNone}, Control: f.Path,
				}
				work.Go(func() {
					_, _ = s.Create(t.Context(), spec) // it may or may not get that far
					_ = f.Close()
				})
			}
			time.Sleep(time.Duration(delay) * 4 * time.Millisecond) // it is killed at different instants of a create
			if err := syscall.Kill(s.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			work.Wait()
			nothingMore(t, before)
		}
		s := start(t, top, nil)
		left, err := s.List(t.Context(), "instant")
		for _, id := range left {
			_, destroyErr := s.Destroy(t.Context(), id)
			err = errors.Join(err, destroyErr)
		}
		if left, err = s.List(t.Context(), "instant"); err != nil || len(left) > 0 {
			t.Errorf("after destroy: %v, %v", left, err)
		}
	})
}

// gc in another process, while the one that made it still runs.
func TestAnotherProcessDestroysALiveSandbox(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		if mode == ids.Held {
			t.Skip("its maker has to end first")
		}
		top := folder(t)
		s, other := start(t, top, nil), start(t, top, nil)
		b := s.open(t, "c", environment.Spec{Labels: environment.Labels{Owner: "live"}})
		if ids, err := other.List(t.Context(), "live"); err != nil || !slices.Equal(ids, []string{b.ID}) {
			t.Fatalf("list: %v, %v", ids, err)
		}
		if _, err := other.Destroy(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
		gone(t, b.PID)
		if _, err := s.Destroy(t.Context(), b.ID); err != nil {
			t.Errorf("destroy by its maker, afterwards: %v", err)
		}
	})
}
