package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/schemas"
)

// heldRun is a run of two trials, one after the other, in each of which an oracle
// works until the test lets it go on.
type heldRun struct {
	*exec.Cmd

	dir    string
	sleeps string // what the oracles sleep, as no other process does
}

func startHeld(t *testing.T) *heldRun {
	t.Helper()
	r := &heldRun{dir: t.TempDir(), sleeps: fmt.Sprintf("1800.%07d", rand.IntN(1e7))}
	for _, name := range []string{"one", "two"} {
		solve := fmt.Sprintf("echo hello from %s; sleep %s; touch /app/done", name, r.sleeps)
		task(t, filepath.Join(r.dir, "tasks"), name, solve)
	}
	experiment(t, r.dir, "agent.oracle", "  limits {\n    in_flight = 1\n  }")
	r.Cmd, _, _ = tree.Command(t, r.dir, "run")
	e2etest.Must(t, r.Start())
	t.Cleanup(func() { _ = r.Process.Signal(syscall.SIGTERM) })
	return r
}

// goOn ends the sleep of the trial that runs, or of the next one.
func (r *heldRun) goOn(t *testing.T) {
	t.Helper()
	testlevel.Eventually(t, "an oracle sleeps", func() bool {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		e2etest.Must(t, err)
		for _, name := range lines {
			line, _ := os.ReadFile(name) //nolint:errcheck // it may have ended
			if string(line) == "sleep\x00"+r.sleeps+"\x00" {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
				e2etest.Must(t, err)
				e2etest.Must(t, syscall.Kill(pid, syscall.SIGTERM))
				return true
			}
		}
		return false
	})
}

// waitRunning returns the first trial that is in a turn of its agent.
func waitRunning(t *testing.T, dir string) types.ShowTrial {
	t.Helper()
	var found types.ShowTrial
	testlevel.Eventually(t, "a trial is in its turn", func() bool {
		r := berth(t, dir, "show", "last", "--json")
		var show types.ShowRun
		if r.code != 0 || json.Unmarshal([]byte(r.out), &show) != nil {
			return false // it has not made its folder yet
		}
		for _, tr := range show.Trials {
			if r := tr.Running; r != nil && r.Phase != nil && r.Phase.Name == record.PhaseTurn {
				answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
				// A phase that has just begun is zero milliseconds old.
				if r.Age <= 0 || r.PhaseAge < 0 || r.Age < r.PhaseAge || show.Summary.Lost != 0 {
					t.Errorf("running: %+v, lost %d", r, show.Summary.Lost)
				}
				found = tr
				return true
			}
		}
		return false
	})
	return found
}

// follow starts to follow a trial, and waits until it does.
func follow(t *testing.T, dir string, args ...string) process {
	t.Helper()
	return begin(t, dir, append([]string{"show", "last", "--watch"}, args...), " turn\n", "waiting for the trial to begin").wait()
}

// A running trial is shown with its phase and age, and followed until it ends,
// also one that has not begun. Ctrl-C ends the following alone. The run is
// watched meanwhile.
func TestARunningTrialIsShownAndFollowed(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	run := startHeld(t)
	dir := run.dir
	now := waitRunning(t, dir)
	watching := begin(t, dir, []string{"show", "last", "--watch"}, "\n").wait()
	first, other := filepath.Base(now.Task), "two"
	if first == other {
		other = "one"
	}
	text := berth(t, dir, "show", "last")
	if line := lineWith(text.out, now.Task); !strings.Contains(line, "running") || !strings.Contains(line, "turn for ") {
		t.Errorf("the list has %q of the trial in\n%s", line, text.out)
	}
	if text = berth(t, dir, "show", "last", first); !strings.Contains(text.out, "outcome running\n") || !strings.Contains(text.out, "attempt 1  running since ") {
		t.Errorf("one trial:\n%s", text.out)
	}

	current, waiting := follow(t, dir, first), follow(t, dir, other)
	stream, left := follow(t, dir, other, "--json"), follow(t, dir, other)
	e2etest.Must(t, left.Process.Signal(syscall.SIGINT))
	stopped := left.end(t)
	if stopped.want(t, 130); !strings.Contains(stopped.stderr, "The run continues") {
		t.Errorf("Ctrl-C: %q", stopped.stderr)
	}
	run.goOn(t)
	run.goOn(t)
	for name, r := range map[string]result{first: current.end(t), other: waiting.end(t)} {
		r.want(t, 0)
		for _, want := range []string{" create\n", " turn\n", " verify\n", "hello from " + name, "outcome    passed", "\noutcome passed\n"} {
			if !strings.Contains(r.out, want) {
				t.Errorf("following %s: no %q in\n%s\n%s", name, want, r.out, r.stderr)
			}
		}
	}
	checkStream(t, stream.end(t))
	if err := run.Wait(); err != nil {
		t.Errorf("the run that was followed: %v", err)
	}
	if r := watching.end(t); r.code != 0 || !strings.Contains(r.out, "running in ") || !strings.Contains(r.out, "2 trials planned = 2 passed") {
		t.Errorf("watching the run (%d):\n%s\n%s", r.code, r.out, r.stderr)
	}
}

// checkStream checks what --watch prints with --json.
func checkStream(t *testing.T, r result) {
	t.Helper()
	r.want(t, 0)
	passed := 0
	for line := range strings.Lines(r.out) {
		var l types.ShowFollow
		e2etest.Must(t, json.Unmarshal([]byte(line), &l))
		e2etest.Must(t, schemas.Check("cli-show-follow", []byte(line)))
		if l.Result != nil && l.Result.Outcome == record.Passed {
			passed++
		}
	}
	if passed != 1 {
		t.Errorf("%d results in\n%s", passed, r.out)
	}
}

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
	return ended(t, p.Cmd, p.Wait(), p.out, p.err)
}

// notices calls seen when one of the texts has been written.
type notices struct {
	to    *bytes.Buffer
	texts []string
	seen  func()
}

func (n notices) Write(b []byte) (int, error) {
	written, err := n.to.Write(b)
	for _, text := range n.texts {
		if strings.Contains(n.to.String(), text) {
			n.seen()
		}
	}
	return written, err
}

// A run whose process was killed is not waited for.
func TestATrialThatNobodyRunsIsNotFollowed(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	run := startHeld(t)
	dir := run.dir
	now := waitRunning(t, dir)
	following := follow(t, dir, now.ID)
	e2etest.Must(t, run.Process.Kill())
	_ = run.Wait()
	r := following.end(t)
	if r.want(t, 3); !strings.Contains(r.stderr, "the process of the run is gone") || !strings.Contains(r.stderr, "berth resume") {
		t.Errorf("%s\n%s", r.out, r.stderr)
	}
	r = berth(t, dir, "show", "last", "--watch")
	if r.want(t, 3); !strings.Contains(r.stderr, "no process writes it") || !strings.Contains(r.out, "the run is not complete") {
		t.Errorf("watching a run that nobody runs:\n%s\n%s", r.out, r.stderr)
	}
	if r = berth(t, dir, "show", "last", now.ID); !strings.Contains(r.out, "outcome not_run") || !strings.Contains(r.out, "killed before it had a result") {
		t.Errorf("%s", r.out)
	}
}

// lineWith returns the last line that has the text.
func lineWith(out, text string) (found string) {
	for line := range strings.Lines(out) {
		if strings.Contains(line, text) {
			found = line
		}
	}
	return found
}
