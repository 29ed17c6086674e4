package command

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// The built program refuses every broken experiment of cmd/berth/internal/config with exit
// code 2, reports at least as many problems as the golden text, and leaves no
// process behind.
func TestValidateOfBrokenExperiments(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(tree.Root, "cmd", "berth", "internal", "config", "testdata", "broken", "*.hcl"))
	if err != nil || len(files) < 25 {
		t.Fatalf("%d broken experiments, %v", len(files), err)
	}
	dir := t.TempDir()
	for _, file := range files {
		name := filepath.Base(file)
		cmd, out, stderr := tree.Command(t, dir, "validate", file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		r := ended(t, cmd, cmd.Run(), out, stderr)
		if r.code != 2 || r.out != "" || !strings.Contains(r.stderr, "Error: ") {
			t.Errorf("%s: code %d\nstdout: %s\nstderr: %s", name, r.code, r.out, r.stderr)
		}
		if left := session(t, cmd.Process.Pid); len(left) > 0 {
			t.Errorf("%s: left running: %q", name, left)
		}
		v := answer[types.Validate](t, berth(t, dir, "validate", file, "--json"), "cli-validate")
		if v.Valid || len(v.Diagnostics) == 0 {
			t.Errorf("%s: as JSON: %+v", name, v)
		}
	}
}

// session lists the processes of a session, by its leader.
func session(t *testing.T, leader int) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, s := range stats {
		b, err := os.ReadFile(s)
		if err != nil {
			continue // it ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 3 && f[0] != "Z" && f[3] == strconv.Itoa(leader) {
			found = append(found, string(b))
		}
	}
	return found
}

// A verifier block that no task names is an error, so that a typing mistake in
// its label does not leave the grading to other settings. It is a warning if
// tasks that were not read may name it.
func TestAVerifierThatNoTaskNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	const block = "verifier \"scrpt\" {\n  plugin = \"script\"\n}\n"
	write := func(dataset string) {
		experiment(t, dir, "agent.nop", "")
		file := filepath.Join(dir, "experiment.hcl")
		text := strings.Replace(e2etest.Read(t, file), `path   = "./tasks"`, "path   = \"./tasks\"\n"+dataset, 1)
		e2etest.Write(t, dir, map[string]string{"experiment.hcl": text + block})
	}
	write("")
	for _, command := range []string{"validate", "plan", "run"} {
		r := berth(t, dir, command)
		r.want(t, 2)
		for _, want := range []string{"experiment.hcl line 24", `No task names a verifier "scrpt"`, `Did you mean "script"?`, "The tasks name script."} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%s does not say %q:\n%s", command, want, r.stderr)
			}
		}
	}
	write("  limit  = 1")
	r := berth(t, dir, "validate")
	r.want(t, 0)
	if !strings.Contains(r.stderr, `Warning: No task names a verifier "scrpt"`) || !strings.Contains(r.stderr, "Tasks that are left out or invalid may have others.") {
		t.Errorf("with a limit:\n%s", r.stderr)
	}
}

// The plan names who grades each task and the rule, and multiplies only if all
// cells have the same tasks.
func TestThePlanSaysWhoGrades(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	task(t, filepath.Join(dir, "more"), "two", "touch /app/done")
	pythonPlugin(t, dir, "judge", judge)
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": `experiment "e2e" {
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
	r := berthWith(t, dir, nil, "plan")
	for _, want := range []string{
		"e2e: 2 cells, 2 tasks, 1 repetition: 2 trials\n", "script                 reward >= 1", "script (plugin judge)  share >= 0.5",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the plan does not say %q:\n%s\n%s", want, r.out, r.stderr)
		}
	}
}
