package engines

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// slow starts a run whose trials work for a while. It returns when some of them
// are in the agent's turn.
func slow(t *testing.T, m *machine, more string) (*place, *session) {
	t.Helper()
	p := newPlace(t, m.env())
	p.task("slow", "", "sleep 5; "+e2etest.SolveTiny, e2etest.TestTiny)
	p.experiment(m.Name, "", "repeat = 3\n  limits {\n    in_flight = 2\n  }\n  "+more)
	s := p.start("run", ".")
	p.until(s, record.PhaseTurn)
	return p, s
}

// until waits until an attempt of the run s is in a phase.
func (p *place) until(s *session, phase record.PhaseName) {
	p.test.Helper()
	testlevel.Eventually(p.test, "an attempt is in phase "+string(phase), func() bool {
		select {
		case <-s.ended:
			p.test.Fatalf("berth ended before an attempt was in phase %s:\n%s\n%s", phase, s.out.String(), s.err.String())
		default:
		}
		return p.in(phase)
	})
}

// in reports whether an attempt is in a phase now.
func (p *place) in(phase record.PhaseName) bool {
	p.test.Helper()
	files, err := filepath.Glob(filepath.Join(p.dir, "runs", "*", "trials", "*", "attempt-*", record.EventsFile))
	if err != nil {
		p.test.Fatal(err)
	}
	began := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for l := range strings.Lines(string(text)) {
			var e record.Event
			if json.Unmarshal([]byte(l), &e) != nil || e.Phase != phase {
				continue
			}
			switch e.Type {
			case record.EventPhaseStart:
				began++
			case record.EventPhaseEnd:
				began--
			default:
			}
		}
	}
	return began > 0
}

// clean checks that `berth gc` leaves nothing of the run: no container, no
// process of a sandbox, no file in the folder of sockets, and no mount.
func (p *place) clean(m *machine) {
	t := p.test
	t.Helper()
	run := p.run()
	if run == "" {
		t.Fatal("there is no run")
	}
	p.berth(0, "gc")
	if left := m.containers(t, run); left != "" {
		t.Errorf("containers are left: %s", left)
	}
	for _, dir := range []string{filepath.Join(p.dir, "r", "berth", "p"), filepath.Join(p.dir, "t")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		for _, e := range entries {
			t.Errorf("left in %s: %s", dir, e.Name())
		}
	}
	for _, m := range p.mounts() {
		if !slices.Contains(p.before, m) {
			t.Errorf("left: %s", m)
		}
	}
	testlevel.Eventually(t, "the processes of the run are gone", func() bool { return len(processes(p.dir+"/")) == 0 })
}

// mounts lists the mounts of the whole machine, without those of other engines
// and other tests.
func (p *place) mounts() []string {
	p.test.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		p.test.Error(err)
	}
	return mountsOf(string(table), p.dir)
}

// mountsOf returns the mounts of a table, without those that are elsewhere.
func mountsOf(table, own string) (all []string) {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 5 && !elsewhere(f[4], own) {
			all = append(all, "mount "+f[3]+" on "+f[4])
		}
	}
	return all
}

// elsewhere reports whether a mount belongs to an engine that others use, or to
// another test.
func elsewhere(at, own string) bool {
	if at == own || strings.HasPrefix(at, own+"/") {
		return false
	}
	for _, shared := range []string{"/var/lib/berth-engines/", "/run/berth-engines/", "/run/user/", "/run/docker/", "/var/lib/docker/", "/var/tmp/be", "/tmp/"} {
		if strings.HasPrefix(at, shared) {
			return true
		}
	}
	return false
}

// kill sends SIGKILL to a process.
func kill(t *testing.T, what string, pids ...int) {
	t.Helper()
	if len(pids) == 0 {
		t.Fatalf("there is no %s to kill", what)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH { //nolint:errorlint // an errno, never wrapped
			t.Fatalf("kill %s %d: %v", what, pid, err)
		}
	}
}

// each runs a test on each engine.
func each(t *testing.T, f func(t *testing.T, m *machine)) {
	t.Helper()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, machineFor(t, name, base))
		})
	}
}

// everyPlugin runs a test on local and on each engine that has Debian.
func everyPlugin(t *testing.T, f func(t *testing.T, p *place, plugin string)) {
	t.Helper()
	for _, plugin := range []string{"local", "docker", "podman"} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			if plugin == "local" {
				f(t, newPlace(t), plugin)
			} else {
				f(t, newPlace(t, machineFor(t, plugin, debian).env()), plugin)
			}
		})
	}
}

// plugins returns the processes of a plugin that a berth has started.
func plugins(s *session, name string) (pids []int) {
	for _, pid := range processes(filepath.Join(bin, "plugins", "berth-plugin-"+name)) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", s.Process.Pid)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestABerthThatIsKilledLeavesNothingAndIsResumed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p, s := slow(t, m, "")
		kill(t, "berth", s.Process.Pid)
		p.end(s)
		p.clean(m)
		p.berth(0, "resume", "last")
		if got := p.show().Summary; !got.Complete || got.Outcomes[record.Passed] != 3 {
			t.Errorf("after resume: complete %v, %v", got.Complete, got.Outcomes)
		}
		p.clean(m)
	})
}

func TestAPluginThatIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p, s := slow(t, m, "retry {\n    max = 3\n    on = [\"plugin_crashed\"]\n    wait = \"10ms\"\n  }")
		kill(t, "plugin", plugins(s, m.Name)...)
		if code := p.end(s); code != 0 {
			t.Errorf("exit code %d\n%s\n%s", code, s.out.String(), s.err.String())
		}
		if got := p.show().Summary; !got.Complete || got.Outcomes[record.Passed] != 3 {
			t.Errorf("complete %v, %v", got.Complete, got.Outcomes)
		}
		p.clean(m)
	})
}
