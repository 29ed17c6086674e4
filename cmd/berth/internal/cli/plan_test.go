package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
)

// What init writes is an experiment that can be planned, always as the same trials.
func TestInitPlanAndValidate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	harborTask(t, filepath.Join(dir, "tasks", "one"))
	run(t, "berth", "init", dir).must(exit(0), prints("experiment.hcl", "check it:  berth plan", "run it:    berth run"))
	run(t, "berth", "init", dir).must(usage("experiment.hcl exists: remove it, or choose another folder"))
	run(t, "berth", "validate", dir).must(exit(0), prints("is valid: 1 trial of 1 task in 1 cell"))
	var p, second output.Plan
	run(t, "berth", "plan", dir, "--json", "--all").must(exit(0), printsJSON("cli-plan", &p))
	if !p.Ready || p.Trials != 1 || len(p.List) != 1 || len(p.List[0].ID) != 64 || p.Cost.WorstUSD == nil || *p.Cost.WorstUSD != 0 {
		t.Fatalf("plan: %+v", p)
	}
	run(t, "berth", "plan", dir).must(exit(0), prints("1 cell × 1 task × 1 repetition = 1 trial", "worst-case cost: 0.00 USD"))
	run(t, "berth", "plan", dir, "--all").must(exit(0), prints(p.List[0].ID[:12]))
	if run(t, "berth", "plan", dir, "--json", "--all").must(printsJSON("cli-plan", &second)); second.List[0].ID != p.List[0].ID {
		t.Error("the same plan has other trial ids")
	}
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("a plan made a folder")
	}
}

// A plan says which tasks are not those that were published, and which that are
// included are invalid.
func TestAPlanSaysWhatIsOddAboutTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	harborTask(t, filepath.Join(dir, "tasks", "one"))
	run(t, "berth", "init", dir).must(exit(0))
	write(t, dir, map[string]string{
		"dataset.toml":        "[dataset]\nname = \"x/y\"\n\n[[tasks]]\nname = \"x/one\"\ndigest = \"sha256:0\"\n\n[[tasks]]\nname = \"x/gone\"\n",
		"tasks/two/task.toml": "[environment]\nworkdri = \"/\"\n",
	})
	run(t, "berth", "plan", dir).must(exit(0),
		complains("Warning: task test/one: task has warnings. The first is ../../dataset.toml:6:1: warning: Task is not the one that was published. Its files give"),
		complains("tasks of the dataset are missing: 1 of them, the first is ../dataset.toml:9:1: warning: Listed task is missing. There is no folder of \"x/gone\"."),
		complains("Warning: task two: task is invalid and counts as task_invalid: environment: Folder is missing"))
	run(t, "berth", "task", "check", filepath.Join(dir, "tasks")).must(prints("\n../dataset.toml:9:1: warning: Listed task is missing. There is no folder of \"x/gone\"."))
	text, err := os.ReadFile(filepath.Join(dir, "experiment.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	included := strings.Replace(string(text), "format = \"harbor\"", "format = \"harbor\"\n  include = [\"test/t*\"]", 1)
	write(t, dir, map[string]string{"experiment.hcl": included})
	run(t, "berth", "plan", dir).must(exit(2), complains("Every task is invalid."), complains("Warning: task two: task is invalid"))
}

// In an empty folder init also writes a task.
func TestInitWritesATask(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	var v output.Init
	if run(t, "berth", "init", dir, "--json").must(exit(0), printsJSON("cli-init", &v)); len(v.Files) < 6 {
		t.Errorf("init: %q", v.Files)
	}
	run(t, "berth", "task", "check", filepath.Join(dir, "tasks")).must(exit(0))
}

// A run in which no trial can begin is not started.
func TestARunWhoseTasksAreAllInvalidDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := experiment(t)
	write(t, dir, map[string]string{"tasks/one/task.toml": "schema_version = \"1.4\"\nsurprise = 1\n"})
	runs := filepath.Join(dir, "runs")
	for _, args := range [][]string{{"run", dir, "--runs", runs}, {"validate", dir}, {"plan", dir}, {"try", filepath.Join(dir, "tasks", "one"), "--runs", runs}} {
		run(t, append([]string{"berth"}, args...)...).must(exit(2), complains("no trial can be run. Every task is invalid."))
	}
	// The same holds when everything is refused and left out.
	write(t, dir, map[string]string{"tasks/one/task.toml": "schema_version = \"1.4\"\n[environment]\ngpus = 1\n"})
	run(t, "berth", "run", dir, "--runs", runs, "--skip-refused").must(usage("no trial can be run. Every task is refused or invalid."))
	if _, err := os.Stat(runs); err == nil {
		t.Error("a run was made")
	}
}

func TestTaskCheckRefusesFlagsWithoutRun(t *testing.T) {
	t.Parallel()
	dir := experiment(t)
	one, two := filepath.Join(dir, "tasks", "one"), filepath.Join(dir, "more", "two")
	harborTask(t, two)
	write(t, one, map[string]string{"cheat/folder/readme": "no script"})
	for want, args := range map[string][]string{
		"--repeat needs --run":                          {one, "--repeat", "2"},
		"--repeat must be a whole number of at least 1": {one, "--run", "--repeat", "0"},
		"cheat/folder has no solve.sh":                  {one, "--run"},
		`--environment: Plugin "nobody"`:                {two, "--run", "--environment", "nobody"},
	} {
		run(t, append([]string{"berth", "task", "check"}, args...)...).must(exit(2), complains(want))
	}
}

// A verifier block that no task names is an error, so that a typing mistake in
// its label does not leave the grading to other settings. It is a warning if
// tasks that were not read may name it.
func TestAVerifierThatNoTaskNames(t *testing.T) {
	t.Parallel()
	dir := experiment(t)
	text := experimentText + "verifier \"scrpt\" {\n  plugin = \"script\"\n}\n"
	write(t, dir, map[string]string{"experiment.hcl": text})
	for _, command := range []string{"validate", "plan", "run"} {
		run(t, "berth", command, dir).must(exit(2), complains("experiment.hcl line 22", `No task names a verifier "scrpt"`, `Did you mean "script"?`, "The tasks name script."))
	}
	write(t, dir, map[string]string{"experiment.hcl": strings.Replace(text, `"./tasks"`, "\"./tasks\"\n  limit = 1", 1)})
	run(t, "berth", "validate", dir).must(exit(0), complains(`Warning: No task names a verifier "scrpt"`, "Tasks that are left out or invalid may have others."))
}

// The plan names who grades each task and the rule, and multiplies only if all
// cells have the same tasks.
func TestThePlanSaysWhoGrades(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	harborTask(t, filepath.Join(dir, "tasks", "one"))
	harborTask(t, filepath.Join(dir, "more", "two"))
	write(t, dir, map[string]string{"experiment.hcl": `experiment "e" {
  environment = environment.local
  agent       = agent.nop
  matrix {
    dataset = [dataset.one, dataset.two]
  }
}
dataset "one" {
  format = "harbor"
  path   = "./tasks"
}
dataset "two" {
  format = "harbor"
  path   = "./more"
  success {
    key      = "share"
    at_least = 0.5
  }
}
environment "local" {
  plugin = "local"
}
agent "nop" {
  plugin = "nop"
}
verifier "script" {
  plugin = matrix.dataset == dataset.two ? "judge" : "script"
}
`})
	run(t, "berth", "plan", dir).must(exit(0), prints(
		"e: 2 cells, 2 tasks, 1 repetition: 2 trials\n", "script                 reward >= 1", "script (plugin judge)  share >= 0.5"))
}
