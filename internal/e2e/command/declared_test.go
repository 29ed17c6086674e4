package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// declaringTask is a task of the local environment with more in task.toml.
func declaringTask(t *testing.T, toml string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	e2etest.Write(t, dir, map[string]string{
		"task/task.toml":              "[task]\nname = \"field/task\"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 60\n[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n" + toml,
		"task/instruction.md":         "Write the word done into /app/out.txt.\n",
		"task/environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
		"task/tests/test.sh":          "#!/bin/sh\nr=0\ngrep -q done /app/out.txt && r=1\necho $r > /logs/verifier/reward.txt\n",
		"task/tests/truth.json":       "{\"x\": 1}\n",
		"task/solution/solve.sh":      "#!/bin/sh\necho done > /app/out.txt\n",
		"replies.yaml":                "replies:\n  - text: |\n      I am done.\n\n      ```bash\n      echo done > /app/out.txt && echo TASK_IS_COMPLETE\n      ```\n",
	})
	return dir
}

func declaringExperiment(t *testing.T, dir, more string, agents ...string) {
	t.Helper()
	text := "experiment \"e\" {\n  datasets    = [dataset.d]\n  environment = environment.local\n  model       = model.m\n  matrix {\n    agent = [agent." + strings.Join(agents, ", agent.") + "]\n  }\n}\n" +
		"dataset \"d\" {\n  format = \"harbor\"\n  path   = \"task\"\n}\nenvironment \"local\" {\n  plugin = \"local\"\n}\nmodel \"m\" {\n  provider = \"script\"\n  script   = \"replies.yaml\"\n}\n" + more
	for _, name := range agents {
		text += fmt.Sprintf("agent %q {\n  plugin = %q\n", name, name)
		if name == "oracle" {
			text += "  oracle = true\n"
		}
		text += "}\n"
	}
	e2etest.Write(t, dir, map[string]string{"e.hcl": text})
}

// plan says for each declaration and cell what becomes of it, and the run does that.
func TestWhatTasksDeclareIsDeliveredToldOrRefused(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := declaringTask(t, "gpus = 1\nskills_dir = \"/opt/skills\"\n[[environment.mcp_servers]]\nname = \"calendar\"\ntransport = \"stdio\"\ncommand = \"python3\"\nargs = [\"/opt/calendar.py\"]\n")
	declaringExperiment(t, dir, "", "minisweagent", "terminus", "nop", "oracle")
	r := berth(t, dir, "plan", "e.hcl", "--json")
	p := answer[types.Plan](t, r, "cli-plan")
	if len(p.Declared) != 1 || len(p.Declared[0].Features) != 3 {
		t.Fatalf("declared %+v\n%s", p.Declared, r.stderr)
	}
	got := map[string]string{}
	for _, c := range p.Declared[0].Cells {
		for _, key := range c.Cells {
			d := c.Delivery
			got[strings.TrimPrefix(key, "agent=")] = fmt.Sprintf("gpu %s, skills %s, mcp %s", d["gpu"], d["skills"], d["mcp"])
		}
	}
	const all, none = "gpu refused, skills delivered, mcp told", "gpu refused, skills unused, mcp unused"
	for name, want := range map[string]string{"minisweagent": all, "terminus": all, "nop": none, "oracle": none} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
	r = berth(t, dir, "plan", "e.hcl")
	if r.want(t, 2); !strings.Contains(r.out, "declared by field/task: gpu, mcp, skills\n") || !strings.Contains(r.out, "agent=terminus      refused  told    delivered\n") {
		t.Errorf("plan prints\n%s", r.out)
	}

	dir = declaringTask(t, "[[environment.mcp_servers]]\nname = \"calendar\"\ntransport = \"stdio\"\ncommand = \"python3\"\nargs = [\"/opt/calendar.py\"]\n")
	declaringExperiment(t, dir, "", "minisweagent")
	r = berth(t, dir, "run", "e.hcl")
	r.want(t, 0)
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	turns, err := os.ReadFile(filepath.Join(show.Trials[0].Attempts[0].Dir, record.TurnsFile))
	if err != nil || !strings.Contains(string(turns), "- calendar: stdio, started as: python3 /opt/calendar.py") {
		t.Errorf("the first message does not name the server: %v\n%s", err, turns)
	}
}

// What a task sets for a verifier is checked before anything runs, with file and line:
// names, types, ranges and nested values, also where an experiment names the verifier.
func TestSettingsOfTasksAreCheckedBeforeARun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ settings, want string }{
		{`{ truth = "tests/truth.json", tolerance_fields = { x = 1 } }`, ""},
		{`{ truth = "tests/truth.json", tolerence_fields = { x = 1 } }`, `task.toml:12:42: verifier "compare-fields": metadata.berth.verifiers[0].settings.tolerence_fields: Unknown name: "tolerence_fields" is not known here. Did you mean "tolerance_fields"?`},
		{`{ truth = "tests/truth.json", tolerance_fields = { x = "1" } }`, `task.toml:12:63: verifier "compare-fields": metadata.berth.verifiers[0].settings.tolerance_fields.x: Wrong value`},
		{`{ truth = "tests/truth.json", tolerance_fields = { x = -1 } }`, `task.toml:12:63: verifier "compare-fields": metadata.berth.verifiers[0].settings.tolerance_fields.x: A tolerance is negative`},
		{`{ tolerance_fields = { x = 1 } }`, `verifier "compare-fields": metadata.berth.verifiers[0].settings.truth: truth is required`},
	} {
		dir := declaringTask(t, "[[metadata.berth.verifiers]]\nname = \"compare-fields\"\nsettings = "+tt.settings+"\n")
		declaringExperiment(t, dir, "", "oracle")
		for _, args := range [][]string{{"task", "check", "task"}, {"validate", "e.hcl"}, {"plan", "e.hcl"}, {"run", "e.hcl"}} {
			if tt.want == "" && args[0] == "run" {
				continue
			}
			r, code := berth(t, dir, args...), 2
			if tt.want == "" {
				code = 0
			}
			if r.code != code || !strings.Contains(r.out+r.stderr, tt.want) {
				t.Errorf("%s with %s: code %d\n%s%s\nwant %d, %q", args, tt.settings, r.code, r.out, r.stderr, code, tt.want)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
			t.Errorf("%s: something was run", tt.settings)
		}
	}
}

// The configuration of every kind of plugin in an experiment is checked before a run:
// names, types, ranges and placeholders, also in nested blocks, with file and line.
func TestConfigurationsOfEveryKindAreChecked(t *testing.T) {
	t.Parallel()
	user := func(config string) string {
		return "user {\n  agent = agent.p\n}\nagent \"p\" {\n  plugin = \"persona\"\n  model  = model.m\n  config {\n" + config + "\n  }\n}\n"
	}
	agent := func(plugin, config string) string {
		return "agent \"p\" {\n  plugin = \"" + plugin + "\"\n  config {\n" + config + "\n  }\n}\nuser {\n  agent = agent.p\n}\n"
	}
	verifier := func(config string) string {
		return "verifier \"script\" {\n  plugin = \"supervisor\"\n  model  = model.m\n  config {\n" + config + "\n  }\n}\n"
	}
	visualJudge := func(config string) string {
		return "verifier \"visual-judge\" {\n  models = { pairs = model.m, final = model.m }\n  config {\n" + config + "\n  }\n}\n"
	}
	for _, tt := range []struct{ more, line, want string }{
		{user("temperature = 99"), "temperature = 99", "Temperature is out of range"},
		{user("max_messages = -1"), "max_messages = -1", "max_messages is negative"},
		{user("polici = \"x\""), "polici = \"x\"", `Did you mean "policy"?`},
		{agent("terminus", "temperature = -1"), "temperature = -1", "Temperature is out of range"},
		{agent("minisweagent", "temperature = 3"), "temperature = 3", "Temperature is out of range"},
		{agent("visual", "memory = 0"), "memory = 0", "memory is out of range"},
		{agent("visual", "temperature = 3"), "temperature = 3", "Temperature is out of range"},
		{agent("random", "actions = -1"), "actions = -1", "actions is out of range"},
		{agent("planner", "temperature = 3"), "temperature = 3", "Temperature is out of range"},
		{agent("claude-code", "mcp \"x\" {\ncomand = [\"a\"]\n}"), "comand = [\"a\"]", `Did you mean "command"?`},
		{verifier("temperature = 3"), "temperature = 3", "Temperature is out of range"},
		{verifier("rubrik = \"x\""), "rubrik = \"x\"", `Did you mean "rubric"?`},
		// A misspelt placeholder would reach the model.
		{agent("planner", `prompt = "{{step}} {{grid}}"`), "{{step}} {{grid}}", "Line 1 of the text has {{step}}, which nothing replaces. Did you mean {{steps}}? Known: {{actions}}, {{format}}, {{steps}}."},
		{agent("visual", `prompt = "{{ actions }}"`), "{{ actions }}", "Line 1 of the text has {{ actions }}, which nothing replaces. Did you mean {{actions}}? Known: {{actions}}, {{steps}}."},
		{user(`prompt = "{{policies}}"`), "{{policies}}", "Line 1 of the text has {{policies}}, which nothing replaces. Did you mean {{policy}}? Known: {{task}}, {{policy}}."},
		{verifier(`prompt = file("supervisor.md")`), `file("supervisor.md")`, "Line 3 of the text has {{taks}}, which nothing replaces. Did you mean {{task}}? Known: {{task}}, {{instructions}}, {{rubric}}, {{tags}}, {{commands}}."},
		{visualJudge(`pairs_prompt = "{TASK_PROMT}"`), "{TASK_PROMT}", "Line 1 of the text has {TASK_PROMT}, which nothing replaces. Did you mean {TASK_PROMPT}?"},
		{visualJudge(`final_prompt = "{FINAL_ANSWER}"`), "{FINAL_ANSWER}", "Line 1 of the text has {FINAL_ANSWER}, which nothing replaces."},
	} {
		dir := declaringTask(t, "")
		declaringExperiment(t, dir, tt.more, "oracle")
		e2etest.Write(t, dir, map[string]string{"supervisor.md": "You judge.\n\nThe task is {{taks}}.\n"})
		r := berth(t, dir, "validate", "e.hcl")
		if strings.Contains(r.stderr, "{{grid}}, which") {
			t.Errorf("what only the task knows is refused:\n%s", r.stderr)
		}
		if r.code != 2 || !strings.Contains(r.stderr, "on e.hcl line ") || !strings.Contains(r.stderr, tt.line) || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: code %d\n%s\nwant %q", tt.line, r.code, r.stderr, tt.want)
		}
	}
}
