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

// On a terminal one live block stays below the lines of finished trials. The
// program sends no queries to the terminal, because the shell would take the
// answer for typed text.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	for name, tt := range map[string]struct {
		env          string
		size         *pty.Winsize
		block, color bool
	}{
		"a terminal":  {"TERM=xterm-256color", &window, true, true},
		"no color":    {"NO_COLOR=1", &window, true, false},
		"a dumb one":  {"TERM=dumb", &window, false, false},
		"without one": {"", nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := progress(t, tt.env, tt.size)
			for what, is := range map[string][2]bool{
				"\x1b[32mpassed": {strings.Contains(got, "\x1b[32mpassed"), tt.color},
				"2 of 2 done":    {strings.Contains(got, "2 of 2 done"), tt.block},
			} {
				if is[0] != is[1] {
					t.Errorf("%q is there: %t, want %t\n%q", what, is[0], is[1], got)
				}
			}
			calm(t, got)
		})
	}
}

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

// progress returns the output of a run of two trials on a terminal of that
// size; nil means no terminal.
func progress(t *testing.T, env string, size *pty.Winsize) string {
	t.Helper()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "sleep 0.5; touch /app/done")
	experiment(t, dir, "agent.oracle, agent.nop", "")
	cmd := exec.CommandContext(t.Context(), tree.Binary, "run")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=xterm", env)
	if size != nil {
		return onTerminal(t, cmd, size)
	}
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return string(b)
}

// calm fails if a part that every run prints is missing, or if the terminal
// received a query or is left without a cursor.
func calm(t *testing.T, got string) {
	t.Helper()
	for _, want := range []string{"e2e/one", "passed", "failed", "2 trials planned = ", "written to runs/"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%q", want, got)
		}
	}
	for _, query := range []string{"$p", "\x1b[6n", "\x1b[c", "\x1b[>", "\x1b]11;?", "\x1b[?u"} {
		if strings.Contains(got, query) {
			t.Errorf("the terminal is asked %q\n%q", query, got)
		}
	}
	if strings.LastIndex(got, "\x1b[?25l") > strings.LastIndex(got, "\x1b[?25h") {
		t.Errorf("the cursor stays hidden\n%q", got)
	}
}

// window is the size of an ordinary terminal.
var window = pty.Winsize{Rows: 30, Cols: 100}

// onTerminal runs a command on a terminal and returns what it printed.
func onTerminal(t *testing.T, cmd *exec.Cmd, size *pty.Winsize) string {
	t.Helper()
	text, err := captured(t, cmd, size)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return text
}

// captured is onTerminal for commands that may fail.
func captured(t *testing.T, cmd *exec.Cmd, size *pty.Winsize) (string, error) {
	t.Helper()
	f, err := pty.StartWithSize(cmd, size)
	e2etest.Must(t, err)
	defer f.Close()
	var b bytes.Buffer
	_, _ = io.Copy(&b, f) //nolint:errcheck // the end of the other side is an error here
	return b.String(), cmd.Wait()
}
