package engine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

// slow is an engine that says that the processes of a container are gone only
// when it is asked.
type slow struct {
	Engine

	kill  func() error
	asked *bool
}

func (s slow) Kill(context.Context, string) error             { return s.kill() }
func (s slow) Wait(context.Context, string) error             { *s.asked = true; return nil }
func (s slow) Written(context.Context, string) (int64, error) { *s.asked = true; return 7, nil }

// The kernel is asked for the end of a container's processes where it can be.
func TestTheEndOfAContainerIsAskedOfTheKernel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		flags uintptr
		asks  bool // the engine
	}{
		{"PID 1 of a namespace", syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID, false},
		{"a process of another container engine's machine", 0, true},
	} {
		cmd := exec.Command("sleep", "60") //nolint:noctx // the test ends it
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: c.flags, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			testlevel.Cannot(t, testlevel.NoNamespaces, err)
		}
		asked := false
		r := &remote{Engine: slow{kill: cmd.Process.Kill, asked: &asked}}
		if err := New(Options{}).end(t.Context(), r, "berth-x", box{pid: cmd.Process.Pid}); err != nil || asked != c.asks {
			t.Errorf("%s: got %v, engine asked: %v", c.name, err, asked)
		}
		_ = cmd.Wait() // "signal: killed" is expected
	}
	refuses := errors.New("no")
	asked := false
	r := &remote{Engine: slow{kill: func() error { return refuses }, asked: &asked}}
	if err := New(Options{}).end(t.Context(), r, "berth-x", box{}); !errors.Is(err, refuses) || asked {
		t.Errorf("got %v, engine asked: %v", err, asked)
	}
}

// The size of what was written counts each file once and follows no links. The
// engine is asked if it cannot be read.
func TestTheSizeOfWhatWasWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := false
	r := &remote{Engine: slow{asked: &asked}}
	big := filepath.Join(t.TempDir(), "big")
	for _, err := range []error{
		os.WriteFile(big, make([]byte, 5000), 0o600),
		os.Mkdir(filepath.Join(dir, "d"), 0o700),
		os.WriteFile(filepath.Join(dir, "a"), make([]byte, 100), 0o600),
		os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "d", "b")),
		os.WriteFile(filepath.Join(dir, "d", "c"), make([]byte, 30), 0o000),
		os.Symlink(big, filepath.Join(dir, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, err := r.written(t.Context(), "berth-x", dir); n != 130 || err != nil || asked {
		t.Errorf("got %d, %v, engine asked: %v", n, err, asked)
	}
	for _, folder := range []string{"", filepath.Join(dir, "none")} {
		asked = false
		if n, err := r.written(t.Context(), "berth-x", folder); n != 7 || err != nil || !asked {
			t.Errorf("folder %q: got %d, %v, engine asked: %v", folder, n, err, asked)
		}
	}
}
