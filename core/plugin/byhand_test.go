package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/runtimedir"
	"github.com/berth-eval/berth/plugins/verifier"
)

// byHand is a plugin that the test has started, as an author would.
type byHand struct {
	cmd  *exec.Cmd
	line string // NAME=ADDRESS,…
}

// shortDir makes a folder whose path leaves room for the path of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(testlevel.Tmp(), "berth-hand-") //nolint:usetesting // that path is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startByHand starts the plugins odd and judge with their sockets in dir.
func startByHand(t *testing.T, dir string) *byHand {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &byHand{cmd: exec.CommandContext(t.Context(), self, plugins.ReattachFlag)}
	b.cmd.Env = append(os.Environ(), roleKey+"=odd", runtimedir.Env+"="+dir, "GORACE=atexit_sleep_ms=0")
	b.cmd.Stderr = os.Stderr
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.end(syscall.SIGKILL) })
	line, err := bufio.NewReader(out).ReadString('\n')
	var ok bool
	if b.line, ok = strings.CutPrefix(strings.TrimSuffix(line, "'\n"), plugins.ReattachEnv+"='"); !ok {
		t.Fatalf("it printed %q, %v", line, err)
	}
	return b
}

func (b *byHand) end(s syscall.Signal) error {
	_ = b.cmd.Process.Signal(s)
	return b.cmd.Wait()
}

func (b *byHand) address() string {
	_, rest, _ := strings.Cut(b.line, "=")
	address, _, _ := strings.Cut(rest, ",")
	return address
}

// A host uses the process that the user started, for all that it serves, and
// leaves it running.
func TestAProcessThatTheUserStartedServes(t *testing.T) {
	t.Parallel()
	b := startByHand(t, shortDir(t))
	if want := fmt.Sprintf("odd=%[1]s,judge=%[1]s", b.address()); b.line != want {
		t.Errorf("line %q, want %q", b.line, want)
	}
	installed := write(t, "odd", "odd")
	for range 2 {
		h, log := newHost(t, Options{Dirs: []string{installed}, ByHand: b.line})
		other, _ := newHost(t, Options{Dirs: []string{}, ByHand: b.line})
		_, used, err := h.Agent(t.Context(), "odd")
		if err != nil || used.Digest != record.Reattached || used.Version != "1.2.3" {
			t.Fatalf("used %+v, %v", used, err)
		}
		for _, host := range []*Host{h, other} {
			if y := turn(t, open(t, host), "pid"); y.ExitCode != b.cmd.Process.Pid {
				t.Errorf("process %d served, want %d", y.ExitCode, b.cmd.Process.Pid)
			}
		}
		v, stop, err := h.VerifierOwnProcess(t.Context(), "judge")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = v.Verify(t.Context(), verifier.Request{}, func(string) {}); !errors.Is(err, verifier.ErrArtifactMissing) {
			t.Errorf("Verify = %v, want ErrArtifactMissing", err)
		}
		stop()
		list, err := h.List(t.Context())
		if err != nil || len(list) != 4 || list[0].Path != b.address() || list[0].Protocol != plugins.Protocol || list[2].ShadowedBy != b.address() {
			t.Errorf("List = %+v, %v", list, err)
		}
		if !strings.Contains(log.String(), "started by hand") || strings.Contains(log.String(), "two binaries") {
			t.Errorf("log:\n%s", log)
		}
		h.Stop()
		other.Stop()
		if !alive(b.cmd.Process.Pid) {
			t.Fatal("the process was ended")
		}
	}
	if err := b.end(syscall.SIGINT); err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := New(Options{Dirs: []string{}, ByHand: b.line}); !errors.Is(err, errNobody) {
		t.Errorf("New = %v, want errNobody", err)
	}
}

// Only the plugins in the variable are taken from the process.
func TestOnlyThePluginsThatAreNamedAreReattached(t *testing.T) {
	t.Parallel()
	b := startByHand(t, shortDir(t))
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}, ByHand: "judge=" + b.address()})
	if y := turn(t, open(t, h), "pid"); y.ExitCode == b.cmd.Process.Pid {
		t.Error("the agent is that of the process, too")
	}
	if _, _, used, err := h.Verifier(t.Context(), "judge"); err != nil || used.Digest != record.Reattached {
		t.Errorf("verifier: %+v, %v", used, err)
	}
}

// A process that was killed is gone for its sessions. One that is started in its
// place has the same address and serves the same host.
func TestAProcessThatTheUserStartedIsReplaced(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := startByHand(t, dir)
	h, _ := newHost(t, Options{Dirs: []string{}, ByHand: b.line})
	_, err := open(t, h).Turn(t.Context(), agent.Message{Turn: 1, Text: "die"}, &notes{})
	if !errors.Is(err, ErrPluginGone) || !strings.Contains(err.Error(), "see its terminal") {
		t.Errorf("turn: %v, want ErrPluginGone", err)
	}
	_ = b.cmd.Wait()
	a, _, err := h.Agent(t.Context(), "odd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = a.Open(t.Context(), agent.Setup{}); !errors.Is(err, errNobody) {
		t.Errorf("Open = %v, want errNobody", err)
	}
	again := startByHand(t, dir)
	if again.line != b.line {
		t.Errorf("line %q, before %q", again.line, b.line)
	}
	if y := turn(t, open(t, h), "pid"); y.ExitCode != again.cmd.Process.Pid {
		t.Errorf("process %d served, want %d", y.ExitCode, again.cmd.Process.Pid)
	}
}

// A process that a debugger has stopped is not ended by a deadline.
func TestAProcessThatIsStoppedInADebuggerIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := startByHand(t, shortDir(t))
	h, _ := newHost(t, Options{Dirs: []string{}, ByHand: b.line})
	s := open(t, h)
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testlevel.Eventually(t, "the process stops", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Turn(ctx, agent.Message{Turn: 1, Text: "pid"}, &notes{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("turn: %v, want DeadlineExceeded", err)
	}
	late, _ := newHost(t, Options{Dirs: []string{}})
	late.startTimeout = 200 * time.Millisecond
	if err := late.readByHand(t.Context(), b.line); err == nil || !strings.Contains(err.Error(), "is it stopped in a debugger?") {
		t.Errorf("readByHand = %v", err)
	}
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if y := turn(t, s, "pid"); y.ExitCode != b.cmd.Process.Pid {
		t.Errorf("process %d served, want %d", y.ExitCode, b.cmd.Process.Pid)
	}
}

func TestAnAddressThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	open := filepath.Join(dir, "open")
	file := filepath.Join(dir, "file")
	for path, make := range map[string]func(string) error{
		open: func(p string) error { return os.Mkdir(p, 0o755) }, //nolint:gosec // that is what is refused
		file: func(p string) error { return os.WriteFile(p, nil, 0o600) },
	} {
		if err := make(path); err != nil {
			t.Fatal(err)
		}
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(open, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // only made to be refused
	for text, want := range map[string]string{
		"odd":                     "is not NAME=ADDRESS",
		"odd=relative/path":       "is not NAME=ADDRESS",
		"odd=" + dir + "/nothing": "no process serves there",
		"odd=" + file:             "it is not a socket",
		"odd=" + open + "/s":      "closed to other users",
		"odd=" + file + ",":       "is not NAME=ADDRESS",
	} {
		if _, err = New(Options{Dirs: []string{}, ByHand: text}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), plugins.ReattachEnv) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	b := startByHand(t, dir)
	if _, err = New(Options{Dirs: []string{}, ByHand: "other=" + b.address()}); err == nil || !strings.Contains(err.Error(), `serves no plugin "other"`) {
		t.Errorf("another plugin: %v", err)
	}
	again := exec.CommandContext(t.Context(), b.cmd.Path, plugins.ReattachFlag)
	again.Env = b.cmd.Env
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), "another process already serves agent") {
		t.Errorf("a second process: %v\n%s", err, out)
	}
}
