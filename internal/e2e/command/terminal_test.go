package command

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// Texts from tasks and sandboxes, in names, output and files, cannot control a
// terminal.
func TestHostileTextsOnATerminal(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	const evil = `\033]0;pwned\007\033[2J\302\2331m\r\b`
	task(t, filepath.Join(dir, "tasks"), "one", `touch /app/done; printf '`+evil+`'; echo x > "$(printf '/app/`+evil+`')"`)
	e2etest.Write(t, filepath.Join(dir, "tasks", "one"), map[string]string{
		"tests/test.sh": "#!/bin/sh\nprintf '" + evil + "'\necho 1 > /logs/verifier/reward.txt\n",
	})
	e2etest.Write(t, filepath.Join(dir, "tasks", "bad\x1b]0;pwned\a"), map[string]string{"task.toml": "[task]\nname = \"a/\\u001b]0;pwned\\u0007\"\n", "instruction.md": "x\n"})
	experiment(t, dir, "agent.oracle", "")
	for _, args := range [][]string{{"task", "check", "tasks"}, {"plan"}, {"run"}, {"show", "last"}, {"show", "last", "one"}, {"show", "last", "one", "1", "--json"}, {"show", "\x1b]0;pwned\a"}} {
		cmd := exec.CommandContext(t.Context(), tree.Binary, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm")
		b, _ := captured(t, cmd, &window)                      // its exit code does not matter here
		if !strings.Contains(b, "pwned") && args[0] != "run" { // there it is not a finding, and so not shown
			t.Errorf("%q does not show what was said:\n%q", args, b)
		}
		for _, bad := range []string{"\x1b]", "\x07", "\x1b[2J", "\u009b", "\b"} {
			if strings.Contains(b, bad) {
				t.Errorf("%q prints %q:\n%q", args, bad, b)
			}
		}
	}
}

// window is the size of an ordinary terminal.
var window = pty.Winsize{Rows: 30, Cols: 100}

// captured runs a command on a terminal and returns what it printed.
func captured(t *testing.T, cmd *exec.Cmd, size *pty.Winsize) (string, error) {
	t.Helper()
	f, err := pty.StartWithSize(cmd, size)
	e2etest.Must(t, err)
	defer f.Close()
	var b bytes.Buffer
	_, _ = io.Copy(&b, f) //nolint:errcheck // the end of the other side is an error here
	return b.String(), cmd.Wait()
}
