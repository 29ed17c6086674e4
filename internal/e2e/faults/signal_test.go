package faults

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// long starts a run of four trials, two at a time, that would take hours, and
// waits until solutions are running.
func long(t *testing.T) (*place, *session) {
	t.Helper()
	p := newPlace(t)
	p.task("long", "", "setsid sleep 7201 & sleep 7202", e2etest.TestTiny)
	p.experiment("repeat = 4\n  matrix {\n    agent = [agent.oracle]\n  }\n  limits {\n    in_flight = 2\n  }", "")
	s := p.start(nil, "run", ".")
	poll(t, "solutions run", s, func() bool {
		sleeping := 0
		for _, pid := range descendants(s.pid) {
			if strings.HasPrefix(cmdline(pid), "sleep 720") {
				sleeping++
			}
		}
		return sleeping == 4
	})
	return p, s
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

// After one Ctrl-C, or the TERM of a shutdown, running trials are recorded as
// cancelled and nothing is left, without `berth gc`.
func TestOneSignalEndsARunCleanly(t *testing.T) {
	t.Parallel()
	sensitive(t)
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := long(t)
			s.signal(sig)
			r := s.wait().want(t, 130)
			if !strings.Contains(r.stdout+r.stderr, "berth resume") {
				t.Errorf("it does not say how to go on:\n%s\n%s", r.stdout, r.stderr)
			}
			show := p.settled(p.run())
			if show.Summary.Outcomes[record.Cancelled] != 2 || show.Summary.Outcomes[record.NotRun] != 2 || show.Summary.Complete {
				t.Errorf("outcomes %v, want two cancelled and two not run", show.Summary.Outcomes)
			}
			if !show.Writers[0].Ended {
				t.Error("the journal does not say that berth ended")
			}
			if left, err := filepath.Glob(filepath.Join(p.runtime(), "berth", "p", "*")); err != nil || len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			p.clean()
		})
	}
}

// A Ctrl-C in a terminal goes to all processes of its foreground. The plugins
// must not react to it.
func TestASignalToTheWholeGroupIsAsClean(t *testing.T) {
	t.Parallel()
	p, s := long(t)
	e2etest.Must(t, syscall.Kill(-s.pid, syscall.SIGINT))
	s.wait().want(t, 130)
	if show := p.settled(p.run()); show.Summary.Outcomes[record.Cancelled] != 2 {
		t.Errorf("outcomes %v, want two cancelled", show.Summary.Outcomes)
	}
	p.clean()
}

// After a second signal, berth does not wait for a clean end that takes too
// long. The test first shows that it would take long.
func TestASecondSignalEndsARunAtOnce(t *testing.T) {
	t.Parallel()
	p, s := long(t)
	plugin := s.child("local")
	if plugin == 0 {
		t.Fatal("no process of the environment")
	}
	if err := syscall.Kill(plugin, syscall.SIGSTOP); err != nil { // no sandbox is removed from now on
		t.Fatal(err)
	}
	s.signal(syscall.SIGINT)
	select {
	case <-s.ended:
		t.Fatal("one signal was enough: the test proves nothing")
	case <-time.After(2 * time.Second):
	}
	begin := time.Now()
	s.signal(syscall.SIGINT)
	r := s.wait()
	if took := time.Since(begin); took > 10*time.Second { // the promise: at once, while a clean end takes longer
		t.Errorf("berth and all of its processes took %s to end", took)
	}
	if r.Signal != syscall.SIGINT && r.Code != 130 {
		t.Errorf("ended with code %d, signal %v", r.Code, r.Signal)
	}
	if show := p.sound(p.run()); show.Summary.Outcomes[record.NotRun]+show.Summary.Outcomes[record.Cancelled] != 4 {
		t.Errorf("outcomes %v", show.Summary.Outcomes)
	}
	p.clean()
}
