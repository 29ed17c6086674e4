package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/schemas"
)

// piloted writes an experiment whose attempts are made by pilots. body is added to
// its experiment block, and more to the executor block.
func (p *place) piloted(body, more string) {
	p.test.Helper()
	scratch := filepath.Join(p.dir, "s")
	e2etest.Must(p.test, os.MkdirAll(scratch, 0o700))
	e2etest.Must(p.test, os.Chown(scratch, p.uid, -1))
	p.experiment(body, fmt.Sprintf("executor \"pilots\" {\n  scratch = %q\n  %s\n}\n", scratch, more))
}

// coordinated starts a run, and returns its folder when pilots can begin.
func (p *place) coordinated() (*session, string) {
	p.test.Helper()
	s := p.start(nil, "run", ".")
	p.follows(s, 1)
	return s, p.run()
}

// follows waits until the n-th coordinator can be followed.
func (p *place) follows(s *session, n int) {
	p.test.Helper()
	poll(p.test, "there is a coordinator", s, func() bool {
		m, err := filepath.Glob(filepath.Join(p.dir, "runs", "*", cluster.Dir, "coordinators", fmt.Sprintf("%d.claim-0", n)))
		return err == nil && len(m) == 1
	})
}

// pilot starts a pilot.
func (p *place) pilot(dir string, workers int) *session {
	p.test.Helper()
	return p.start(nil, "pilot", dir, "--in-flight", fmt.Sprint(workers))
}

// vacated checks that nothing of pilots is left on this machine.
func (p *place) vacated() {
	p.test.Helper()
	p.berth("gc", "--scratch", filepath.Join(p.dir, "s")).want(p.test, 0)
	p.clean()
	left, err := filepath.Glob(filepath.Join(p.dir, "s", "*", "*"))
	if err != nil || len(left) > 0 {
		p.test.Errorf("left of pilots: %q, %v", left, err)
	}
}

// attemptsOf returns the results of all attempts of a run, by folder, and how many
// attempts have none.
func attemptsOf(t *testing.T, dir string) (results map[string]*record.Result, none int) {
	t.Helper()
	_, x, err := store.Read(dir)
	e2etest.Must(t, err)
	results = map[string]*record.Result{}
	for _, tr := range x.Trials {
		for _, a := range tr.Attempts {
			at := filepath.Join(tr.Dir, store.AttemptDir(a.Number))
			r, err := store.ReadResult(filepath.Join(dir, store.TrialsDir, at))
			if err != nil {
				none++
				continue
			}
			if a.Result == nil || a.Result.Outcome != r.Outcome {
				t.Errorf("%s: the journal says %+v, the result %s", at, a.Result, r.Outcome)
			}
			results[at] = r
		}
	}
	return results, none
}

// Two pilots make the same run as this machine alone: the same trials, rewards and
// manifest.
func TestPilotsMakeTheSameRun(t *testing.T) {
	t.Parallel()
	users(t, func(p *place) {
		t := p.test
		p.task("tiny", "", e2etest.SolveTiny, e2etest.TestTiny)
		const body = "repeat = 3\n  matrix {\n    agent = [agent.oracle, agent.nop]\n  }"
		p.experiment(body, "")
		p.berth("run", ".").want(t, 0)
		alone := p.run()
		if said := p.berth("pilot", alone).want(t, 2).stderr; !strings.Contains(said, `has no block executor "pilots" {}`) || !strings.Contains(said, "--experiment FILE") {
			t.Errorf("a pilot for a run without pilots: %s", said)
		}
		moved := filepath.Join(p.dir, "alone")
		e2etest.Must(t, os.Rename(alone, moved))
		p.piloted(body, "")
		c, dir := p.coordinated()
		one, two := p.pilot(dir, 1), p.pilot(dir, 1)
		c.wait().want(t, 0)
		one.wait().want(t, 0)
		two.wait().want(t, 0)

		if n := len(e2etest.SameRun(t, moved, dir)); n != 6 {
			t.Errorf("%d results", n)
		}
		p.showsPilots(dir, 6)
		p.settled(dir)
		p.vacated()
		if n, err := schemas.CheckRun(dir); err != nil || n == 0 {
			t.Errorf("%d texts of the run checked against their schemas: %v", n, err)
		}
	})
}

// showsPilots checks that a run that has ended is shown with two pilots, which made so
// many attempts.
func (p *place) showsPilots(dir string, attempts int) {
	t := p.test
	t.Helper()
	var shown output.ShowRun
	e2etest.Must(t, json.Unmarshal([]byte(p.berth("show", dir, "--json").want(t, 0).stdout), &shown))
	text := p.berth("show", dir).want(t, 0).stdout
	done := 0
	for _, o := range shown.Pilots {
		done += o.Done
		if o.State != output.PilotEnded || o.Why != "the run has ended" || o.Node == "" || o.InFlight != 1 || o.Running != 0 {
			t.Errorf("%+v", o)
		}
		if !regexp.MustCompile(regexp.QuoteMeta(o.Pilot) + ` +` + regexp.QuoteMeta(o.Node) + ` +ended +0 +` + strconv.Itoa(o.Done) + ` +the run has ended`).MatchString(text) {
			t.Errorf("%s is not in:\n%s", o.Pilot, text)
		}
	}
	if len(shown.Pilots) != 2 || done != attempts {
		t.Errorf("%d attempts of %d pilots, want %d of 2", done, len(shown.Pilots), attempts)
	}
}

// The coordinator and its pilots are killed at random instants, and started again:
// no result is lost, nothing counts twice, and nothing is left on the machine.
func TestKilledPilotsAndCoordinatorsLoseNothing(t *testing.T) {
	t.Parallel()
	trials := 60
	if testlevel.All() {
		trials = 200
	}
	p := newPlace(t)
	p.task("tiny", "", e2etest.SolveTiny, e2etest.TestTiny)
	p.piloted(fmt.Sprintf(`repeat = %d
  matrix {
    agent = [agent.oracle, agent.nop]
  }
  limits {
    in_flight = 6
  }
  retry {
    max = 50
    on  = ["preempted"]
    wait = "0s"
  }`, trials/2), `lost_after = "2s"`)
	c, dir := p.coordinated()
	coordinators, kills := 1, 0
	pilots := []*session{p.pilot(dir, 2), p.pilot(dir, 2)}
	before := published(t, dir)
	for kills < 7 {
		poll(t, "attempts end", c, func() bool { return count(t, dir, "attempt_ended") >= (kills+1)*trials/9 || over(c) })
		after := published(t, dir)
		still(t, before, after)
		if before = after; over(c) {
			break
		}
		wait(c, rand.N(150*time.Millisecond))
		kills++
		switch i := rand.N(3); i {
		case 2:
			c.signal(syscall.SIGKILL)
			if r := c.wait(); r.Signal != syscall.SIGKILL {
				r.want(t, 0)
				break
			}
			coordinators++
			c = p.start(nil, "resume", dir)
			p.follows(c, coordinators)
		default:
			pilots[i].signal(syscall.SIGKILL)
			pilots[i].wait()
			pilots[i] = p.pilot(dir, 2)
		}
	}
	c.wait().want(t, 0)
	for _, s := range pilots {
		s.wait()
	}
	still(t, before, published(t, dir))
	results, none := attemptsOf(t, dir)
	finished := map[record.Outcome]int{}
	for _, r := range results {
		finished[r.Outcome]++
	}
	if finished[record.Passed] != trials/2 || finished[record.Failed] != trials/2 || len(finished) > 3 {
		t.Errorf("after %d kills: %v, and %d without a result; want %d passed and failed each, and else only preempted", kills, finished, none, trials/2)
	}
	if kills < 3 {
		t.Errorf("only %d kills: the test proves little", kills)
	}
	p.settled(dir)
	endedOnce(t, dir)
	p.vacated()
}

// over reports whether a process has ended.
func over(s *session) bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// leased waits until pilots have n of the attempts with such a name.
func leased(c *session, dir, name string, n int) {
	t := c.place.test
	t.Helper()
	poll(t, "pilots have attempts", c, func() bool {
		m, err := filepath.Glob(filepath.Join(dir, cluster.Dir, "leases", name))
		return err == nil && len(m) >= n
	})
}

// solveLong works for two seconds and more.
const solveLong = "i=0; while [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done; " + e2etest.SolveTiny

// The coordinator is killed. Its pilots go on, and the one that resumes the run
// keeps what they have.
func TestPilotsOutliveTheirCoordinator(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("long", "", solveLong, e2etest.TestTiny)
	p.piloted("agent = agent.oracle\n  repeat = 4", "")
	c, dir := p.coordinated()
	pilots := []*session{p.pilot(dir, 1), p.pilot(dir, 1)}
	leased(c, dir, "*", 2)
	c.signal(syscall.SIGKILL)
	c.wait()
	p.berth("resume", dir).want(t, 0)
	for _, s := range pilots {
		s.wait().want(t, 0)
	}
	results, none := attemptsOf(t, dir)
	for at, r := range results {
		if r.Outcome != record.Passed {
			t.Errorf("%s is %s", at, r.Outcome)
		}
	}
	if len(results) != 4 || none > 0 { // a local run would have begun four others
		t.Errorf("%d attempts with and %d without a result, want 4 and 0", len(results), none)
	}
	p.settled(dir)
	p.vacated()
}

// One Ctrl-C at the coordinator ends the run on all machines.
func TestOneSignalEndsPilotsToo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("long", "", solveLong, e2etest.TestTiny)
	p.piloted("agent = agent.oracle\n  repeat = 4", "")
	c, dir := p.coordinated()
	pilot := p.pilot(dir, 2)
	leased(c, dir, "*", 2)
	c.signal(syscall.SIGINT)
	c.wait().want(t, 130)
	pilot.wait().want(t, 0)
	results, none := attemptsOf(t, dir)
	for at, r := range results {
		if r.Outcome != record.Cancelled {
			t.Errorf("%s is %s", at, r.Outcome)
		}
	}
	if len(results) != 4 || none > 0 {
		t.Errorf("%d attempts with and %d without a result, want 4 and 0", len(results), none)
	}
	p.vacated()
}
