package command

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// attemptsOf lists the attempts of the last run in dir, by their folders.
func attemptsOf(t *testing.T, dir string) (folders []string, complete bool) {
	t.Helper()
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	for i := range show.Trials {
		for _, a := range show.Trials[i].Attempts {
			folders = append(folders, a.Dir)
		}
	}
	slices.Sort(folders)
	return folders, show.Summary.Complete
}

func TestARunIsExtended(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	experiment(t, dir, "agent.oracle", "")
	berth(t, dir, "run").want(t, 0)
	before, _ := attemptsOf(t, dir)
	result := e2etest.Read(t, filepath.Join(before[0], "result.json"))

	// More repetitions, then another task and another agent.
	experiment(t, dir, "agent.oracle", "  repeat = 3")
	r := berth(t, dir, "resume", "last", "--experiment", "experiment.hcl")
	if r.want(t, 0); !strings.Contains(r.stderr, "the run is extended from 1 to 3 trials: repeat: 1 → 3") || !strings.Contains(r.out, "3 trials planned = 3 passed") {
		t.Errorf("repetitions:\n%s%s", r.out, r.stderr)
	}
	task(t, filepath.Join(dir, "tasks"), "two", "touch /app/done")
	experiment(t, dir, "agent.oracle, agent.nop", "  repeat = 3")
	r = berth(t, dir, "resume", "last", "--experiment", "experiment.hcl")
	if r.want(t, 0); !strings.Contains(r.stderr, "from 3 to 12 trials") || !strings.Contains(r.stderr, "agent=nop") || !strings.Contains(r.stderr, "task: added tasks/e2e/two") ||
		!strings.Contains(r.out, "12 trials planned = 6 passed + 6 failed") {
		t.Errorf("a task and a cell:\n%s%s", r.out, r.stderr)
	}
	after, complete := attemptsOf(t, dir)
	if len(after) != 12 || !complete || !slices.Contains(after, before[0]) || e2etest.Read(t, filepath.Join(before[0], "result.json")) != result {
		t.Errorf("%d attempts (complete: %v), want 12 with %s as it was", len(after), complete, before[0])
	}

	// The stored experiment is the larger one, and the first is kept.
	if r = berth(t, dir, "resume", "last"); !strings.Contains(r.out, "nothing to run") {
		t.Errorf("resumed from its own files:\n%s%s", r.out, r.stderr)
	}
	run := filepath.Dir(filepath.Dir(filepath.Dir(before[0])))
	for folder, repeat := range map[string]bool{"experiment": false, "experiment-2": true, "experiment-3": true} {
		if text := e2etest.Read(t, filepath.Join(run, folder, "experiment.hcl")); strings.Contains(text, "repeat") != repeat {
			t.Errorf("%s has\n%s", folder, text)
		}
	}

	// Fewer trials, and a change that alters results, also beside an extension.
	experiment(t, dir, "agent.oracle, agent.nop", "  repeat = 2")
	refused(t, berth(t, dir, "resume", "last", "--experiment", "experiment.hcl"), "repeat: 3 → 2")
	experiment(t, dir, "agent.oracle, agent.nop", "  repeat = 4\n  per_trial {\n    agent_time = \"7m\"\n  }")
	r = berth(t, dir, "resume", "last", "--experiment", "experiment.hcl")
	if refused(t, r, "per_trial.agent_time_ns: added 420000000000"); strings.Contains(r.stderr, "repeat") {
		t.Errorf("what may change is in the list of what may not: %s", r.stderr)
	}
	if r = berth(t, dir, "resume", "last"); r.code != 1 && r.code != 0 || !strings.Contains(r.out, "12 trials planned") {
		t.Errorf("a refused extension changed the run (%d):\n%s%s", r.code, r.out, r.stderr)
	}
}
