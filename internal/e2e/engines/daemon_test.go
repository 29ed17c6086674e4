package engines

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// archive is the base image as scripts/engines-for-tests wrote it.
const archive = "/var/lib/berth-engines/base-docker-archive.tar"

// server is an engine that one test starts and may kill.
type server struct {
	*machine

	argv, env []string
	dir       string // its own, with its store and its sockets; empty: none
	cmd       *exec.Cmd
	ended     chan struct{} // closed when cmd has
}

// up starts the server and waits until it answers. If the server gives up, up
// starts it again: after a crash, containerd can be too slow for its daemon.
func (s *server) up(t *testing.T) {
	t.Helper()
	var ended chan struct{}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // it ends in a skip, not in a fault
		if s.cmd == nil {
			ended = s.launch(t)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		err := s.get(ctx, "/version", nil)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-ended:
			s.cmd = nil
		default:
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(s.path + ".log")
			s.down(t)
			testlevel.Cannot(t, s.argv[0]+" does not work here: go test -v prints its log", fmt.Sprintf("%v\n%s", err, text[max(0, len(text)-1000):]))
		}
	}
}

// launch starts the server, and returns a channel that is closed when the
// server ends.
func (s *server) launch(t *testing.T) chan struct{} {
	t.Helper()
	_ = os.Remove(s.path) // left by one that was killed
	log, err := os.OpenFile(s.path+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), s.argv[0], s.argv[1:]...)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = s.env, log, log, "/"
	s.cmd.SysProcAttr, s.cmd.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, time.Second
	if s.plugin == "docker" {
		// A daemon without a bridge removes docker0, which may belong to
		// another.
		s.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	if err = s.cmd.Start(); err != nil {
		s.cmd = nil
		testlevel.Cannot(t, s.argv[0]+" does not work here: go test -v prints its log", err)
	}
	cmd, ended := s.cmd, make(chan struct{})
	s.ended = ended
	go func() { defer close(ended); _ = cmd.Wait() }()
	return ended
}

// down kills the server and all processes of its group.
func (s *server) down(t *testing.T) {
	t.Helper()
	if s.cmd == nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.ended
	s.cmd = nil
}

// end stops the server gracefully, so that it removes its mounts and helpers.
func (s *server) end(t *testing.T) {
	t.Helper()
	if s.cmd == nil {
		s.up(t)
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		s.down(t)
	}
}

// daemon makes a separate Docker daemon, with its data in dir and the base
// image.
func daemon(t *testing.T, dir string, options ...string) *server {
	t.Helper()
	testlevel.Root(t, "start a daemon of Docker")
	binary, err := exec.LookPath("dockerd")
	if err != nil {
		t.Skip("dockerd is not installed: run scripts/engines-for-tests as root to have it tried")
	}
	run := filepath.Join(dir, "run")
	if err = os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &server{machine: machineAt("docker", filepath.Join(run, "d.sock")), dir: dir}
	s.argv = []string{
		binary, "--host", "unix://" + s.path, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(run, "x"), "--pidfile", filepath.Join(run, "pid"),
		"--iptables=false", "--ip6tables=false", "--bridge=none", "--default-ulimit", "nofile=1024:1024",
	}
	if runc, missing := exec.LookPath("runc"); missing == nil {
		s.argv = append(s.argv, "--add-runtime", "e2e-runc="+runc, "--default-runtime", "e2e-runc")
	}
	s.argv = append(s.argv, options...)
	s.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "DOCKER_RAMDISK=1"}
	s.up(t)
	t.Cleanup(func() { s.end(t) })
	s.load(t)
	return s
}

// load gives the engine the base image.
func (s *server) load(t *testing.T) {
	t.Helper()
	image, err := os.Open(archive)
	if err != nil {
		t.Skip("the base image is not there as a file" + e2etest.Help)
	}
	defer image.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://engine/v1.40/images/load?quiet=1", image)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if err := s.get(t.Context(), "/images/"+base+"/json", nil); err != nil {
		testlevel.Cannot(t, "an engine of its own cannot load the base image"+e2etest.Help, fmt.Sprintf("%s, %v", a.Status, err))
	}
}

// short makes a folder with a short path for sockets, removed at the end.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "be") //nolint:usetesting // short, and not on a tmpfs, which has no place for overlays of overlays
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Error(err)
			return // what is mounted there must not be removed
		}
		lines := strings.Split(string(mounts), "\n")
		for _, line := range slices.Backward(lines) { // a killed daemon leaves its own
			if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
				if err := syscall.Unmount(f[4], syscall.MNT_DETACH); err != nil {
					t.Errorf("unmount %s: %v", f[4], err)
					return
				}
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("stays: %v", err)
		}
	})
	return dir
}

func TestADaemonThatIsKilledEndsItsTrialsAndNothingIsLeft(t *testing.T) {
	t.Parallel()
	s := daemon(t, short(t))
	killed(t, s)
}

// killed runs trials, kills the engine's server while they run, and starts it
// again for gc.
func killed(t *testing.T, s *server) {
	t.Helper()
	p, b := slow(t, s.machine, "")
	s.down(t)
	p.end(b)
	s.up(t)
	if show := p.show(); show.Summary.Planned != 3 {
		t.Errorf("%v of %d", show.Summary.Outcomes, show.Summary.Planned)
	} else {
		for _, tr := range show.Trials {
			if len(tr.Attempts) > 0 && tr.Outcome != record.Passed && tr.Outcome != record.EnvironmentError {
				t.Errorf("a trial of a killed engine is %s: %+v", tr.Outcome, tr.Attempts[0].Error)
			}
		}
	}
	p.clean(s.machine)
}
