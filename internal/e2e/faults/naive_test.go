package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// naive is a harness without protection, in its own process. What happens to it
// is the damage that Berth prevents. args[0] says what it does.
func naive(args []string) int {
	f := map[string]func([]string) error{"run": naiveRun, "print": naivePrint, "share": naiveShare, "polite": naivePolite, "slow": naiveSlow}[args[0]]
	if err := f(args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// naively starts such a harness.
func (p *place) naively(env []string, args ...string) *session {
	p.test.Helper()
	self, err := os.Executable()
	if err != nil {
		p.test.Fatal(err)
	}
	return p.shepherd(nil, append([]string{keepEnv + "=1", patienceEnv + "=1s"}, env...), append([]string{"/usr/bin/env", roleEnv + "=naive", self}, args...)...)
}

// naiveRun keeps the results in memory, writes them at the end and handles no
// signal. Each of its tasks leaves a process in another session.
func naiveRun([]string) error {
	var results strings.Builder
	for i := range 1000 {
		if err := exec.Command("sh", "-c", "setsid sleep 300 > /dev/null 2>&1 & exit 0").Run(); err != nil { //nolint:noctx // killed with this process, or not: that is the point
			return err
		}
		fmt.Fprintf(&results, "trial %d passed\n", i)
		fmt.Fprintln(os.Stdout, i)
	}
	return os.WriteFile("results.txt", []byte(results.String()), 0o600)
}

// naivePrint collects the output of a test as it comes and writes it beside the
// results, which it writes last.
func naivePrint(args []string) error {
	out, err := exec.Command("sh", args[0]).CombinedOutput() //nolint:noctx // no guards
	if err == nil {
		err = os.WriteFile("test-stdout.txt", out, 0o600)
	}
	if err == nil {
		err = os.WriteFile("results.txt", []byte("flood passed\n"), 0o600)
	}
	return err
}

// naiveShare runs the trials that have no result yet, as a resume does; args[0]
// is the number of trials. Between looking and running it waits for the file
// "go", as long as another process might by chance.
func naiveShare([]string) error {
	done, err := os.ReadFile("results.txt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fmt.Fprintln(os.Stdout, "looked")
	for {
		if _, err = os.Stat("go"); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond) // until the test, in another process, makes the file
	}
	f, err := os.OpenFile("results.txt", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range shared {
		line := fmt.Sprintf("trial %d passed\n", i)
		if strings.Contains(string(done), line) {
			continue
		}
		if _, err = f.WriteString(line); err != nil {
			return err
		}
	}
	return nil
}

// shared is how many trials there are in the folder of naiveShare.
const shared = 5

// naivePolite has a process that removes what was created when it is
// interrupted, as the plugin of an environment would. That process is in the
// same process group.
func naivePolite([]string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT)
	defer stop()
	helper := exec.Command("sh", "-c", ": > made; echo ready; read line && rm made && echo removed") //nolint:noctx // no guards
	in, err := helper.StdinPipe()
	if err != nil {
		return err
	}
	pipe, err := helper.StdoutPipe()
	if err != nil {
		return err
	}
	if err = helper.Start(); err != nil {
		return err
	}
	said := bufio.NewReader(pipe)
	line, err := said.ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, line)
	<-ctx.Done()
	_, _ = io.WriteString(in, "remove\n") // what becomes of it is seen in the folder
	_, _ = said.ReadString('\n')
	_ = helper.Wait()
	return nil
}

// naiveSlow handles an interrupt cleanly, but its clean-up waits for something
// that does not answer, and its signal handler stays installed until the end.
func naiveSlow([]string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT)
	defer stop()
	fmt.Fprintln(os.Stdout, "ready")
	<-ctx.Done()
	fmt.Fprintln(os.Stdout, "cleans up")
	time.Sleep(time.Hour) // until it is killed
	return nil
}

// sensitive makes the processes that this test starts end at SIGINT and SIGHUP,
// also if the test was started in the background or under nohup: a process that
// handles a signal gives its children the default.
func sensitive(t *testing.T) {
	t.Helper()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT)
	t.Cleanup(func() { signal.Stop(signals) })
}

// The damage of a kill and of a Ctrl-C: results are lost, and processes stay.
func TestANaiveHarnessLosesAllAndLeavesProcesses(t *testing.T) {
	t.Parallel()
	sensitive(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			s := p.naively(nil, "run")
			poll(t, "three trials are finished", s, func() bool { return strings.Count(read(s.out), "\n") >= 3 })
			s.signal(sig)
			<-s.ended
			if _, err := os.Stat(filepath.Join(p.dir, "results.txt")); err == nil {
				t.Error("the results of a harness without guards are there: the test proves nothing")
			}
			if len(s.result.Left) < 3 {
				t.Errorf("left: %q: processes that were left are not seen", s.result.Left)
			}
		})
	}
}

// The damage of a Ctrl-C in a terminal: all processes of the foreground get the
// signal, also the one that should clean up.
func TestANaiveHarnessCannotCleanUpAfterASignalToTheGroup(t *testing.T) {
	t.Parallel()
	sensitive(t)
	for name, all := range map[string]bool{"to it alone": false, "to the group": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			s := p.naively(nil, "polite")
			poll(t, "something is made", s, func() bool { return read(s.out) == "ready\n" })
			pid := s.pid
			if all {
				pid = -pid
			}
			if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			<-s.ended
			if _, err := os.Stat(filepath.Join(p.dir, "made")); (err == nil) != all {
				t.Errorf("what was made is left: %v, want %v", err == nil, all)
			}
		})
	}
}

// The damage of a signal handler that stays installed: a second Ctrl-C has no
// effect.
func TestANaiveHarnessCannotBeEndedAtOnce(t *testing.T) {
	t.Parallel()
	sensitive(t)
	p := newPlace(t)
	s := p.naively(nil, "slow")
	poll(t, "it is ready", s, func() bool { return read(s.out) == "ready\n" })
	s.signal(syscall.SIGINT)
	poll(t, "it cleans up", s, func() bool { return strings.HasSuffix(read(s.out), "cleans up\n") })
	s.signal(syscall.SIGINT)
	select {
	case <-s.ended:
		t.Errorf("a second signal ended it (%d, %v): the test proves nothing", s.result.Code, s.result.Signal)
	case <-time.After(time.Second):
	}
	s.signal(syscall.SIGKILL)
	<-s.ended
}

// The damage of two processes on one folder: each trial counts twice.
func TestTwoNaiveHarnessesCountAllTwice(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	both := []*session{p.naively(nil, "share"), p.naively(nil, "share")}
	for _, s := range both {
		poll(t, "both have looked at what there is to do", s, func() bool { return read(s.out) == "looked\n" })
	}
	p.write("go", "")
	for _, s := range both {
		s.wait().want(t, 0)
	}
	lines := slices.Collect(strings.Lines(read(filepath.Join(p.dir, "results.txt"))))
	if len(lines) != 2*shared {
		t.Errorf("%d results of %d trials: %q", len(lines), shared, lines)
	}
}
