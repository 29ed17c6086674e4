package faults

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/cli/answer"
	"github.com/berth-eval/berth/core/record"
)

// crashTrials is how many trials the run has in which a plugin is killed.
const crashTrials = 10

// A plugin that is killed costs the attempts that it was at work on, and no
// other; with `retry` not even these.
func TestAPluginKilledInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	for _, plugin := range []string{"local", "oracle", "script"} {
		for _, retry := range []bool{false, true} {
			if retry && plugin == "script" {
				continue // as with the others
			}
			t.Run(fmt.Sprintf("%s/retry=%v", plugin, retry), func(t *testing.T) {
				t.Parallel()
				pluginKilled(t, plugin, retry)
			})
		}
	}
}

func pluginKilled(t *testing.T, plugin string, retry bool) {
	t.Helper()
	p := newPlace(t)
	p.task("slow", "", solveTiny+"; sleep 1.01", "sleep 1.02; "+testTiny)
	body := fmt.Sprintf("repeat = %d\n  matrix {\n    agent = [agent.oracle]\n  }\n  limits {\n    in_flight = 2\n  }", crashTrials)
	if retry {
		body += "\n  retry {\n    max = 3\n    on = [\"plugin_crashed\"]\n    wait = \"10ms\"\n  }"
	}
	p.experiment(body, "")
	call := "sleep 1.01" // is there while the plugin is in its call
	if plugin == "script" {
		call = "sleep 1.02"
	}
	s := p.start(nil, "run", ".", "--no-live")
	poll(t, "two trials are done and the next are in a call of the plugin", s, func() bool {
		dirs, err := filepath.Glob(filepath.Join(p.dir, "runs", "*"))
		if err != nil || len(dirs) != 1 || count(t, dirs[0], "attempt_ended") < 2 {
			return false
		}
		return slices.ContainsFunc(descendants(s.pid), func(pid int) bool { return cmdline(pid) == call })
	})
	pid := s.child(plugin)
	if pid == 0 {
		t.Fatalf("no process of plugin %s below berth %d", plugin, s.pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
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
	default:
		r.want(t, 1)
		if crashed == 0 || crashed > 2 || show.Summary.Outcomes[record.Passed] != crashTrials-crashed {
			t.Errorf("%v, want one or two crashed and the others passed\n%s", show.Summary.Outcomes, r.stdout)
		}
	}
	p.clean()
}

// checkBlame checks that an attempt that did not pass says who is to blame.
func checkBlame(t *testing.T, plugin string, tr *answer.ShowTrial) {
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
