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
