package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/schemas"
)

// process is a command that was started.
type process struct {
	*exec.Cmd

	out, err *bytes.Buffer
	printed  chan struct{} // closed when it has printed what was waited for
}

// begin starts a command that is expected to print one of the texts.
func begin(t *testing.T, dir string, args []string, texts ...string) process {
	t.Helper()
	cmd, out, stderr := tree.Command(t, dir, args...)
	p := process{cmd, out, stderr, make(chan struct{})}
	seen := sync.OnceFunc(func() { close(p.printed) })
	cmd.Stdout, cmd.Stderr = notices{out, texts, seen}, notices{stderr, texts, seen}
	e2etest.Must(t, cmd.Start())
	return p
}

// wait returns when the process has printed one of the texts. The test looks at
// what was printed if it never does.
func (p process) wait() process {
	select {
	case <-p.printed:
	case <-time.After(time.Minute):
	}
	return p
}

func (p process) end(t *testing.T) result {
	t.Helper()
	return finish(t, p.Cmd, p.out, p.err)
}

// watchers are processes that watch the same run at the same time.
type watchers struct {
	text, lines, left process
	terminal          chan string // what was printed on a terminal
}

// watch starts to watch the last run.
func watch(t *testing.T, dir string, args ...string) process {
	t.Helper()
	return begin(t, dir, append([]string{"show", "last", "--watch"}, args...), "\n")
}

// watchAll starts those who watch, and waits until each has printed the run.
func watchAll(t *testing.T, dir string) *watchers {
	t.Helper()
	w := &watchers{text: watch(t, dir), lines: watch(t, dir, "--json"), left: watch(t, dir), terminal: make(chan string, 1)}
	cmd := exec.CommandContext(t.Context(), tree.Binary, "show", "last", "--watch")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm")
	screen, err := pty.StartWithSize(cmd, &window)
	e2etest.Must(t, err)
	go func() {
		defer screen.Close()
		b, _ := io.ReadAll(screen) //nolint:errcheck // the end of the other side is an error here
		w.terminal <- fmt.Sprintf("%s\nended: %v", b, cmd.Wait())
	}()
	for _, p := range []process{w.text, w.lines, w.left} {
		p.wait()
	}
	return w
}

// leave interrupts one of the watchers.
func (w *watchers) leave(t *testing.T) {
	t.Helper()
	e2etest.Must(t, w.left.Process.Signal(syscall.SIGINT))
	r := w.left.end(t)
	if r.want(t, 130); !strings.Contains(r.stderr, "The run continues") || !strings.Contains(r.out, "running in ") {
		t.Errorf("Ctrl-C: %q\n%s", r.stderr, r.out)
	}
}

// aScreen is how a text on a terminal is replaced.
var aScreen = regexp.MustCompile(`\x1b\[\d+A\r\x1b\[J`)

// check looks at what was printed of a run of two trials, the second of at least
// three seconds, which was watched while the first was running. Of such a run at most
// five states differ: the first trial has ended, the second has begun and has
// ended, and the process has ended; the run is read each second.
func (w *watchers) check(t *testing.T) {
	t.Helper()
	const fewest, most = 3, 5
	r := w.text.end(t)
	r.want(t, 0)
	docs := strings.Split(r.out, "  planned 20")[1:]
	if n := len(docs); n < fewest || n > most {
		t.Fatalf("the tables were printed %d times:\n%s", n, r.out)
	}
	last := docs[len(docs)-1]
	if !strings.Contains(docs[0], "running in ") || !strings.Contains(last, "2 trials planned = 2 passed") || strings.Contains(last, "running in ") {
		t.Errorf("the tables were\n%s", r.out)
	}

	r = w.lines.end(t)
	r.want(t, 0)
	var all []types.ShowRun
	for line := range strings.Lines(r.out) {
		var doc types.ShowRun
		e2etest.Must(t, json.Unmarshal([]byte(line), &doc))
		e2etest.Must(t, schemas.Check("cli-show-run", []byte(line)))
		all = append(all, doc)
	}
	if n := len(all); n < fewest || n > most {
		t.Fatalf("%d documents:\n%s", n, r.out)
	}
	if first, end := all[0], all[len(all)-1]; first.Writers[0].Ended || first.Summary.Complete ||
		!end.Writers[0].Ended || !end.Summary.Complete || end.Summary.Outcomes[record.Passed] != 2 {
		t.Errorf("the documents were\n%s", r.out)
	}

	screens := aScreen.Split(<-w.terminal, -1)
	last = screens[len(screens)-1]
	if len(screens) < fewest+1 || !strings.Contains(screens[0], "running in ") || strings.Contains(last, "running in ") ||
		!strings.Contains(last, "2 passed") || !strings.Contains(last, "ended: <nil>") || strings.Count(last, "  planned 20") != 1 {
		t.Errorf("the terminal showed\n%q", screens)
	}
}

// A run that has ended is printed once.
func watchEnded(t *testing.T, dir string) {
	t.Helper()
	r := berth(t, dir, "show", "last", "--watch")
	if r.want(t, 0); strings.Count(r.out, "  planned 20") != 1 || r.stderr != "" {
		t.Errorf("watching a run that has ended:\n%s\n%s", r.out, r.stderr)
	}
}
