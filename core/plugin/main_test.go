package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// The test binary also plays the plugins that the tests start: a script of two
// lines starts it with roleKey set.
const roleKey = "BERTH_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleKey); role != "" {
		play(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// play plays a plugin in this process.
func play(role string) {
	fmt.Fprintln(os.Stderr, "I am", role)
	switch role {
	case "hang": // in the handshake
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour) // until it is killed; select{} would be a deadlock for a runtime without cgo
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot find my own feet")
		os.Exit(3) //nolint:forbidigo // a plugin that does not start
	case "stray":
		fmt.Fprintln(os.Stdout, "Hello, I am a plugin!")
	case "newer":
		fmt.Fprintln(os.Stdout, "1|4|unix|/nowhere|grpc|")
		time.Sleep(time.Hour) // until it is killed
	case "netrpc":
		fmt.Fprintln(os.Stdout, "1|1|unix|/nowhere|netrpc|")
		time.Sleep(time.Hour) // until it is killed
	}
	// A second agent, with another name, makes the same file another binary.
	plugins.Serve(
		plugins.Agent(plugins.Info{Name: "odd", Version: "1.2.3", Doc: "Does odd things.", Env: []string{"ODD_ASKED"}}, oddConfig{}, odd{}),
		plugins.Verifier(plugins.Info{Name: "judge", Version: "1.0.0"}, nil, verifier.Traits{Needs: verifier.NeedsNone, Rounds: true}, judge{}),
	)
}

type oddConfig struct {
	Size int `berth:"size" default:"3" doc:"Between 1 and 9."`
}

func (c oddConfig) Validate() []config.Problem {
	if c.Size < 1 || c.Size > 9 {
		return []config.Problem{{Path: "size", Summary: "Size is out of range", Detail: fmt.Sprintf("Got %d. Write 1 to 9.", c.Size)}}
	}
	return nil
}

// odd is an agent whose turns do what the message says.
type odd struct{}

func (odd) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{Logs: []string{"/var/log/odd"}}, nil
}

func (odd) Open(context.Context, agent.Setup) (agent.Session, error) { return odd{}, nil }

func (odd) Close(_ context.Context, _ string, r agent.Recorder) error { return r.Log("closed") }

func (odd) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	word, rest, _ := strings.Cut(m.Text, " ")
	done := agent.Yield{End: agent.Done, Message: "did " + word}
	switch word {
	case "step":
		return done, r.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text(rest)})
	case "pid":
		done.ExitCode = os.Getpid()
	case "environment":
		done.Message = strings.Join(os.Environ(), "\n")
	case "stdin": // is a pipe that nothing writes to
		info, err := os.Stdin.Stat()
		if err != nil {
			return done, err
		}
		done.Message = info.Mode().String()
	case "stderr":
		_, err := syscall.Write(2, []byte(rest+"\n"))
		return done, err
	case "stdout": // not through Go's os.Stdout, which go-plugin replaces
		_, err := syscall.Write(1, bytes.Repeat([]byte("x"), 1<<20))
		return done, err
	case "flood":
		line := bytes.Repeat([]byte("y"), 200)
		for range 50_000 {
			if _, err := syscall.Write(2, append(line, '\n')); err != nil {
				return done, err
			}
		}
	case "die":
		fmt.Fprintln(os.Stderr, "I was asked to die")
		return done, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "panic":
		panic("odd indeed")
	case "wait":
		if err := r.Log("waiting"); err != nil {
			return done, err
		}
		<-ctx.Done()
		return done, ctx.Err()
	case "stop": // stops all of its threads
		return done, syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "child": // in our process group, and holding our stderr
		cmd := exec.CommandContext(context.WithoutCancel(ctx), "sleep", "600")
		cmd.Stderr = os.NewFile(2, "stderr")
		if err := cmd.Start(); err != nil {
			return done, err
		}
		done.ExitCode = cmd.Process.Pid
	}
	return done, nil
}

type judge struct{}

func (judge) Verify(_ context.Context, r verifier.Request, _ func(string)) (verifier.Verdict, error) {
	if r.Stage == "die" {
		os.Exit(7) //nolint:forbidigo // a plugin that dies
	}
	return verifier.Verdict{}, fmt.Errorf("look at it: %w", verifier.ErrArtifactMissing)
}

func (judge) Rewrite(_ context.Context, _ verifier.Request, _ verifier.Verdict, candidate string) (string, error) {
	return candidate + "!", nil
}

// write puts a plugin that plays role into a new folder and returns the folder.
func write(t *testing.T, role, name string) string {
	t.Helper()
	dir := t.TempDir()
	writeTo(t, programOf(dir, name), role)
	return dir
}

// programOf returns the path of the program of the plugin name, which is a folder.
func programOf(dir, name string) string {
	return filepath.Join(dir, plugins.ProgramPrefix+name, plugins.ProgramPrefix+name)
}

func writeTo(t *testing.T, path, role string) {
	t.Helper()
	self, err := os.Executable()
	testlevel.Must(t, err)
	// A program with the race detector sleeps for a second before it exits.
	script := fmt.Sprintf("#!/bin/sh\n# %s\nGORACE=atexit_sleep_ms=0 %s=%s exec '%s'\n", path, roleKey, role, self)
	// A child that another test forks meanwhile would hold the file open for
	// writing, and such a file cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	testlevel.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	testlevel.Must(t, os.WriteFile(path, []byte(script), 0o700))
}

// journal keeps the log of a host.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func newHost(t *testing.T, o Options) (*Host, *journal) {
	t.Helper()
	j := &journal{}
	o.Log = zerolog.New(j)
	h, err := New(o)
	testlevel.Must(t, err)
	t.Cleanup(func() {
		h.Stop()
		if t.Failed() {
			t.Logf("log:\n%s", j)
		}
	})
	return h, j
}

// notes is a Recorder that keeps everything.
type notes struct {
	mu    sync.Mutex
	steps []trajectory.Step
	logs  []string
	heard chan struct{} // gets a token for each log line; may be nil
}

func (n *notes) Step(s trajectory.Step) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.steps = append(n.steps, s)
	return nil
}

func (n *notes) Log(line string) error {
	n.mu.Lock()
	n.logs = append(n.logs, line)
	n.mu.Unlock()
	if n.heard != nil {
		n.heard <- struct{}{}
	}
	return nil
}

func (n *notes) Artifact(string) error { return nil }

// open starts a session of the odd agent.
func open(t *testing.T, h *Host) agent.Session {
	t.Helper()
	a, _, err := h.Agent(t.Context(), "odd")
	testlevel.Must(t, err)
	s, err := a.Open(t.Context(), agent.Setup{Role: agent.RoleAgent})
	testlevel.Must(t, err)
	return s
}

// turn sends one message to a session and fails the test on an error.
func turn(t *testing.T, s agent.Session, text string) agent.Yield {
	t.Helper()
	y, err := s.Turn(t.Context(), agent.Message{Turn: 1, Text: text}, &notes{})
	if err != nil {
		t.Fatalf("turn %q: %v", text, err)
	}
	return y
}

// alive reports whether a process exists and is not only waiting to be reaped.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || err != nil {
		return false
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(after, []byte("Z"))
}
