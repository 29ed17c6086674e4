package command

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

const standing = `#!/usr/bin/python3
from berth_plugin import Verdict, Verifier, serve

class StandIn(Verifier):
    """Says what became of a loop."""
    name = "stand-in"

    def verify(self, request):
        rule = request.read("references/eval_rule.md")
        return Verdict("fail" if b"Fail" in rule else "pass", labels={"status": "done\x1b[2J"})

serve(StandIn())
`

const claws = `experiment "claws" {
  datasets    = [dataset.claw]
  environment = environment.here
  agent       = agent.nop
}
dataset "claw" {
  format = "uniclaw"
  path   = "bench"
  config {
    snapshot = true
  }
}
environment "here" {
  plugin  = "local"
  network = "none"
}
agent "nop" {
  plugin = "nop"
}
verifier "supervisor" {
  plugin = "stand-in"
}
verifier "loop-result" {
  plugin = "stand-in"
}
`

// The solutions of the sample tasks pass, judged by what is in their results, and
// doing nothing does not. The same comes out of a replay, for which the models are
// not needed.
func TestTheUniClawExample(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(tree.Root, "examples", "uniclaw"))))
	berth(t, dir, "run").want(t, 0)
	recorded := claws6(t, dir)
	for _, name := range []string{"supervisor.yaml", "user.yaml"} { // another model
		e2etest.Write(t, dir, map[string]string{name: "replies: [{text: I was asked.}]\n"})
	}
	berth(t, dir, "run", "--replay", filepath.Base(recorded.Dir)).want(t, 0)
	played := claws6(t, dir)
	if a, b := replies(t, &recorded), replies(t, &played); played.Dir == recorded.Dir || len(a) != 12 || !maps.EqualFunc(a, b, slices.Equal) {
		t.Errorf("recorded %v\nplayed %v", a, b)
	}
}

// replies returns the replies of all models, by task and cell. The requests have times in
// them.
func replies(t *testing.T, show *output.ShowRun) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for i := range show.Trials {
		for _, x := range exchangesOf(t, &show.Trials[i]) {
			name := show.Trials[i].Task + " " + show.Trials[i].CellKey
			out[name] = append(out[name], x.Role+" "+x.Reply)
		}
	}
	return out
}

// claws6 checks the last run of the six sample tasks.
func claws6(t *testing.T, dir string) output.ShowRun {
	t.Helper()
	show := answer[output.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	if len(show.Trials) != 12 {
		t.Errorf("%d trials", len(show.Trials))
	}
	for _, trial := range show.Trials {
		want := record.Failed
		if strings.Contains(trial.CellKey, "oracle") {
			want = record.Passed
		}
		if trial.Outcome != want {
			t.Errorf("%s of %s is %s, not %s", trial.Task, trial.CellKey, trial.Outcome, want)
		}
	}
	return show
}

// A format whose tasks are files in one folder: each can be named, an edit of one
// is not an edit of the others, and the settings of the dataset are part of the run.
func TestTasksThatAreFiles(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir := t.TempDir()
	pythonPlugin(t, dir, "stand-in", standing)
	files := map[string]string{"experiment.hcl": claws}
	for _, id := range []string{"one", "two"} {
		files["bench/tasks/101_x/"+id+".yaml"] = "task_id: " + id + "\ncategory: 101_x\ntask: Do it.\nreferences: [references/eval_rule.md]\n"
		files["bench/injection/101_x/"+id+"/references/eval_rule.md"] = "Judge " + id + ".\n"
	}
	e2etest.Write(t, dir, files)
	plan := answer[output.Plan](t, berthWith(t, dir, nil, "plan", "--json"), "cli-plan")
	if len(plan.Tasks) != 2 || plan.Tasks[1].Path != "tasks/101_x/two.yaml" || !plan.Tasks[1].Valid || plan.Trials != 2 {
		t.Errorf("planned %+v", plan.Tasks)
	}
	if r := berthWith(t, dir, nil, "task", "check", "bench/tasks/101_x/one.yaml"); r.code != 0 || !strings.Contains(r.out, "101_x/one  valid") || strings.Contains(r.out, "101_x/two") {
		t.Errorf("%d\n%s%s", r.code, r.out, r.stderr)
	}
	refused(t, berthWith(t, dir, nil, "try", "bench/tasks/101_x/one.yaml", "--agent", "nop"), `verifier "supervisor"`)
	if r := berthWith(t, dir, nil, "run"); r.code != 0 || !strings.Contains(r.out, "2 trials planned = 2 passed") || !strings.Contains(r.out, "status") || strings.Contains(r.out, "\x1b[2J") {
		t.Fatalf("%d\n%s\n%s", r.code, r.out, r.stderr)
	}
	berthWith(t, dir, nil, "resume", "last").want(t, 0)
	edit(t, filepath.Join(dir, "bench/injection/101_x/two/references/eval_rule.md"), "Judge two", "Pass two")
	r := berthWith(t, dir, nil, "resume", "last")
	refused(t, r, "task claw/101_x/two: content", "changed after the run was made: injection/101_x/two/references/eval_rule.md")
	if strings.Contains(r.stderr, "101_x/one") {
		t.Errorf("another task counts as changed:\n%s", r.stderr)
	}
	edit(t, filepath.Join(dir, "bench/injection/101_x/two/references/eval_rule.md"), "Pass two", "Judge two")
	berthWith(t, dir, nil, "resume", "last").want(t, 0)

	edit(t, filepath.Join(dir, "bench/injection/101_x/two/references/eval_rule.md"), "Judge two", "Fail two")
	r = berthWith(t, dir, nil, "regrade", "last")
	if r.want(t, 0); !strings.Contains(r.stderr+r.out, "1 of 2 verdicts changed\n  101_x/two (nop, repetition 1): passed") || !strings.Contains(r.out, "2 trials planned = 1 passed + 1 failed") {
		t.Errorf("regraded:\n%s\n%s", r.out, r.stderr)
	}
	edit(t, filepath.Join(dir, "bench/injection/101_x/two/references/eval_rule.md"), "Fail two", "Judge two")
	edit(t, filepath.Join(dir, "experiment.hcl"), "snapshot = true", "snapshot = false")
	refused(t, berthWith(t, dir, nil, "resume", "last", "--experiment", "experiment.hcl"), "config.values.snapshot: true → false")
	edit(t, filepath.Join(dir, "experiment.hcl"), "snapshot = false", "snapshots = true")
	refused(t, berthWith(t, dir, nil, "plan"), "experiment.hcl line 10", `There is no "snapshots" here. Did you mean "snapshot"?`)
}
