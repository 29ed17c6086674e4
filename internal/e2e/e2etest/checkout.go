package e2etest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
)

// Checkout is the source tree with the programs that scripts/build built in it.
type Checkout struct {
	Root      string // of the tree
	Binary    string // bin/berth in it
	NoSandbox string // what doctor says if no sandbox can be made here; empty: it can
}

// Main is for TestMain: it builds the tree, whose root is three levels above
// the test's folder, gives Berth a short runtime folder, and runs the tests. It
// returns the exit code.
func (c *Checkout) Main(m *testing.M) int {
	runtime, err := os.MkdirTemp(testlevel.Tmp(), "be2") // short, because sockets lie below it
	if err == nil {
		defer func() { _ = os.RemoveAll(runtime) }()
		err = errors.Join(os.Setenv("BERTH_RUNTIME_DIR", runtime), c.build())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func (c *Checkout) build() (err error) {
	if c.Root, err = filepath.Abs("../../.."); err != nil {
		return err
	}
	if err = built(c.Root); err != nil {
		return err
	}
	c.Binary = filepath.Join(c.Root, "bin", "berth")
	if out, err := exec.Command(c.Binary, "doctor").CombinedOutput(); err != nil { //nolint:noctx // before any test there is no context
		c.NoSandbox = string(out)
	}
	return nil
}

// NeedsSandbox skips the test where this machine forbids sandboxes.
func (c *Checkout) NeedsSandbox(t *testing.T) {
	t.Helper()
	Watch(t, c.Root)
	if c.NoSandbox != "" {
		testlevel.Cannot(t, "no sandbox can be made here: bin/berth doctor says what is missing", c.NoSandbox)
	}
}

// Command makes a command of berth with these arguments, in dir, and buffers
// for its output.
func (c *Checkout) Command(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, out, stderr *bytes.Buffer) {
	t.Helper()
	Watch(t, c.Root)
	cmd = exec.CommandContext(t.Context(), c.Binary, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), "NO_COLOR=1"), 10*time.Second
	out, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, stderr
	return cmd, out, stderr
}

// Berth runs berth in dir.
func (c *Checkout) Berth(t *testing.T, dir string, args ...string) (code int, out, stderr string) {
	t.Helper()
	cmd, o, e := c.Command(t, dir, args...)
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, e)
	}
	Audited(t, cmd, cmd.ProcessState.ExitCode())
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}
