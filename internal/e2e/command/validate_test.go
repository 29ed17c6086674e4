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

// A misspelt placeholder in a prompt would reach the model. It is refused where the
// experiment has the prompt, with the line of the text and the words that are known.
func TestMisspeltPlaceholdersAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "hello", "true")
	experiment(t, dir, "agent.oracle, agent.planner, agent.visual", "")
	const blocks = `
agent "planner" {
  plugin = "planner"
  model  = model.m
  config {
    prompt          = "{{step}} {{grid}}"
    continue_prompt = "{{grid}}"
  }
}
agent "visual" {
  plugin = "visual"
  model  = model.m
  config {
    prompt = "{{ actions }}"
  }
}
agent "persona" {
  plugin = "persona"
  config {
    prompt = "{{policies}}"
  }
}
user {
  agent = agent.persona
  model = model.m
}
verifier "supervisor" {
  model = model.m
  config {
    prompt = file("supervisor.md")
  }
}
verifier "visual-judge" {
  models = { pairs = model.m, final = model.m }
  config {
    pairs_prompt = "{TASK_PROMT}"
    final_prompt = "{FINAL_ANSWER}"
  }
}
model "m" {
  provider = "script"
  script   = "m.yaml"
}
`
	file := filepath.Join(dir, "experiment.hcl")
	text := e2etest.Read(t, file) + blocks
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": text, "m.yaml": "replies: [{text: a}]\n", "supervisor.md": "You judge.\n\nThe task is {{taks}}.\n"})
	for _, command := range []string{"validate", "plan"} {
		r := berth(t, dir, command, "experiment.hcl")
		for in, want := range map[string]string{
			`prompt          = "{{step}} {{grid}}"`: "Line 1 of the text has {{step}}, which nothing replaces. Did you mean {{steps}}? Known: {{actions}}, {{format}}, {{steps}}.",
			`prompt = "{{ actions }}"`:              "Line 1 of the text has {{ actions }}, which nothing replaces. Did you mean {{actions}}? Known: {{actions}}, {{steps}}.",
			`prompt = "{{policies}}"`:               "Line 1 of the text has {{policies}}, which nothing replaces. Did you mean {{policy}}? Known: {{task}}, {{policy}}.",
			`prompt = file("supervisor.md")`:        "Line 3 of the text has {{taks}}, which nothing replaces. Did you mean {{task}}? Known: {{task}}, {{instructions}}, {{rubric}}, {{tags}}, {{commands}}.",
			`pairs_prompt = "{TASK_PROMT}"`:         "Line 1 of the text has {TASK_PROMT}, which nothing replaces. Did you mean {TASK_PROMPT}?",
			`final_prompt = "{FINAL_ANSWER}"`:       "Line 1 of the text has {FINAL_ANSWER}, which nothing replaces.",
		} {
			before, _, _ := strings.Cut(text, in)
			line := strings.Count(before, "\n") + 1
			if at := "on experiment.hcl line " + strconv.Itoa(line) + ","; r.code != 2 || !strings.Contains(r.stderr, at) || !strings.Contains(r.stderr, want) {
				t.Errorf("berth %s: exit code %d; want %q %s in\n%s", command, r.code, at, want, r.stderr)
			}
		}
		if strings.Contains(r.stderr, "{{grid}}, which") {
			t.Errorf("berth %s refuses what only the task knows:\n%s", command, r.stderr)
		}
	}
}
