package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// killTrials is the number of trials of the run that is killed repeatedly.
const killTrials = 200

// A run that is killed at random instants and resumed loses no result, counts
// no trial twice, and leaves nothing on the machine.
func TestKilledAtRandomInstantsNothingIsLostOrCountedTwice(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("tiny", "", e2etest.SolveTiny, e2etest.TestTiny)
	p.experiment(fmt.Sprintf(`repeat = %d
  matrix {
    agent = [agent.oracle, agent.nop]
  }
  limits {
    in_flight = 4
  }`, killTrials/2), "")

	args, dir, kills, before := []string{"run", "."}, "", 0, map[string][]byte{}
	for len(before) < killTrials*3/4 && kills < 14 {
		s := p.start(nil, args...)
		if dir == "" {
			poll(t, "there is a run folder", s, func() bool {
				m, err := filepath.Glob(filepath.Join(p.dir, "runs", "*", "manifest.jsonl"))
				return err == nil && len(m) == 1
			})
			dir, args = p.run(), []string{"resume", p.run()}
		}
		if kills%3 == 2 { // any time, most often while it starts
			wait(s, rand.N(400*time.Millisecond))
		} else { // while trials run
			more := count(t, dir, "attempt_ended") + 1 + rand.N(2*killTrials/14)
			poll(t, "trials are done", s, func() bool { return count(t, dir, "attempt_ended") >= min(more, killTrials) })
			wait(s, rand.N(30*time.Millisecond))
		}
		s.signal(syscall.SIGKILL)
		if r := s.wait(); r.Signal == syscall.SIGKILL {
			kills++
		} else {
			r.want(t, 0)
		}
		after := published(t, dir)
		still(t, before, after)
		before = after
	}
	if kills < 5 {
		t.Errorf("only %d kills: the test proves little", kills)
	}
	p.sound(dir)
	p.berth(args...).want(t, 0)
	after := published(t, dir)
	still(t, before, after)

	s := p.settled(dir)
	if !s.Summary.Complete || s.Summary.Outcomes[record.Passed] != killTrials/2 || s.Summary.Outcomes[record.Failed] != killTrials/2 {
		t.Errorf("after %d kills: %v, want half passed, half failed", kills, s.Summary.Outcomes)
	}
	if len(after) != killTrials || s.Summary.Attempts != killTrials || s.Damaged != 0 {
		t.Errorf("%d results for %d trials, %d attempts in the summary, %d damaged lines: something counts twice, or not", len(after), killTrials, s.Summary.Attempts, s.Damaged)
	}
	endedOnce(t, dir)
	p.clean()
	t.Logf("%d kills, %d attempts lost to them, %d torn lines", kills, s.Summary.Lost, s.Torn)
}

// endedOnce checks that no journal records the end of an attempt twice.
func endedOnce(t *testing.T, dir string) {
	t.Helper()
	seen := map[string]bool{}
	for _, l := range journal(t, dir) {
		key := l.Entry.Trial + " " + strconv.Itoa(l.Entry.Attempt)
		if l.Entry.Kind == "attempt_ended" && seen[key] {
			t.Errorf("the end of attempt %s stands in the journals twice", key)
		}
		seen[key] = seen[key] || l.Entry.Kind == "attempt_ended"
	}
}

// wait waits for the duration d or until s ends.
func wait(s *session, d time.Duration) {
	select {
	case <-s.ended:
	case <-time.After(d):
	}
}

// A second berth on the same run folder is refused and told which process uses
// it. If that process was killed, the second one starts.
func TestTwoBerthsOnOneRunFolder(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("slow", "", "sleep 600", e2etest.TestTiny)
	p.task("tiny", "", e2etest.SolveTiny, e2etest.TestTiny)
	p.experiment(`matrix {
    agent = [agent.oracle]
  }
  per_trial {
    agent_time = var.time
  }
  limits {
    in_flight = 1
  }`, "variable \"time\" {\n  default = \"10m\"\n}\n")
	first := p.start(nil, "run", ".")
	poll(t, "an attempt is under way", first, func() bool {
		dirs, err := filepath.Glob(filepath.Join(p.dir, "runs", "*"))
		return err == nil && len(dirs) == 1 && count(t, dirs[0], "attempt_began") > 0
	})
	dir := p.run()
	second := p.berth("resume", dir).want(t, 2)
	if want := fmt.Sprintf("pid %d on ", first.pid); !strings.Contains(second.stderr, want) || !strings.Contains(second.stderr, "in use") {
		t.Errorf("the second berth does not name the first (%s):\n%s", want, second.stderr)
	}
	busy := p.sound(dir)
	if len(busy.Writers) != 1 || busy.Writers[0].Ended {
		t.Errorf("writers: %+v", busy.Writers)
	}
	first.signal(syscall.SIGKILL)
	first.wait()

	s := p.start(nil, "resume", dir)
	poll(t, "the run goes on", s, func() bool { return count(t, dir, "attempt_began") > 1 })
	s.signal(syscall.SIGINT)
	s.wait().want(t, 130)
	p.settled(dir)
	p.clean()
}

// crashTrials is the number of trials of the run in which a plugin is killed.
const crashTrials = 10

// If a plugin is killed, only the attempts that it was working on are lost.
// With `retry` these are repeated.
func TestAPluginKilledInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	for plugin, retry := range map[string]bool{"local": true, "oracle": false, "script": false} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			pluginKilled(t, plugin, retry)
		})
	}
}

func pluginKilled(t *testing.T, plugin string, retry bool) {
	t.Helper()
	p := newPlace(t)
	p.task("slow", "", e2etest.SolveTiny+"; sleep 1.01", "sleep 1.02; "+e2etest.TestTiny)
	body := fmt.Sprintf("repeat = %d\n  matrix {\n    agent = [agent.oracle]\n  }\n  limits {\n    in_flight = 2\n  }", crashTrials)
	if retry {
		body += "\n  retry {\n    max = 3\n    on = [\"plugin_crashed\"]\n    wait = \"10ms\"\n  }"
	}
	p.experiment(body, "")
	s := p.start(nil, "run", ".")
	poll(t, "two trials are done", s, func() bool {
		dirs, err := filepath.Glob(filepath.Join(p.dir, "runs", "*"))
		return err == nil && len(dirs) == 1 && count(t, dirs[0], "attempt_ended") >= 2
	})
	kills := s.killInCall(plugin)
	r := s.wait()
	show := p.settled(p.run())
	crashed, attempts := show.Summary.Outcomes[record.PluginCrashed], 0
	for i := range show.Trials {
		attempts += len(show.Trials[i].Attempts)
		checkBlame(t, plugin, &show.Trials[i])
	}
	switch {
	case retry:
		r.want(t, 0)
		if show.Summary.Outcomes[record.Passed] != crashTrials || attempts <= crashTrials {
			t.Errorf("retried: %v in %d attempts, want all passed in more than %d", show.Summary.Outcomes, attempts, crashTrials)
		}
	case plugin == "script": // a verification is repeated in the same attempt
		r.want(t, 0)
		if show.Summary.Outcomes[record.Passed] != crashTrials || attempts != crashTrials {
			t.Errorf("%v in %d attempts, want all passed in %d", show.Summary.Outcomes, attempts, crashTrials)
		}
	default:
		r.want(t, 1)
		if crashed == 0 || crashed > 2*kills || show.Summary.Outcomes[record.Passed] != crashTrials-crashed {
			t.Errorf("%v, want one or two crashed by each of %d kills and the others passed\n%s", show.Summary.Outcomes, kills, r.stdout)
		}
	}
	p.clean()
}

// killInCall kills a plugin during a call, and returns how many tries it took:
// on a busy machine the call may have ended before the signal arrives.
func (s *session) killInCall(plugin string) (kills int) {
	t := s.place.test
	t.Helper()
	call := "sleep 1.01" // is there while the plugin is in its call
	if plugin == "script" {
		call = "sleep 1.02"
	}
	dir := s.place.run()
	crashed := func() bool {
		for _, b := range published(t, dir) {
			if strings.Contains(string(b), string(record.PluginCrashed)) || strings.Contains(string(b), "verifier_repeated") {
				return true
			}
		}
		return false
	}
	for ; !crashed(); kills++ {
		poll(t, "the plugin is in a call", s, func() bool {
			return slices.ContainsFunc(descendants(s.pid), func(pid int) bool { return cmdline(pid) == call })
		})
		ended := count(t, dir, "attempt_ended")
		if pid := s.child(plugin); pid != 0 { // else it was not started again since the last time
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		poll(t, "what was under way has ended", s, func() bool { return crashed() || count(t, dir, "attempt_ended") >= ended+2 })
	}
	return kills
}

// checkBlame checks that an attempt that did not pass says who is to blame.
func checkBlame(t *testing.T, plugin string, tr *output.ShowTrial) {
	t.Helper()
	who := map[string]record.Boundary{"local": record.ByEnvironment, "oracle": record.ByAgent, "script": record.ByVerifier}[plugin]
	for i := range tr.Attempts {
		a := &tr.Attempts[i]
		if a.Outcome == record.Passed {
			continue
		}
		if a.Outcome != record.PluginCrashed || a.Error == nil || a.Error.Boundary != who || !a.Error.Retry {
			t.Errorf("%s: %s, error %+v; want a retryable plugin_crashed of the %s", a.Dir, a.Outcome, a.Error, who)
		}
	}
}
