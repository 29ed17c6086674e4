package scaffolds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

const gated = `experiment "gated" {
  datasets    = [dataset.claw]
  environment = environment.local
  agent       = agent.it
  model       = model.m
}
dataset "claw" {
  format = "uniclaw"
  path   = "."
}
environment "local" {
  plugin  = "local"
  network = "none"
}
agent "it" {
  plugin = %q
}
verifier "supervisor" {
  model = model.judge
}
agent "persona" {
  plugin = "persona"
}
user {
  agent = agent.persona
  model = model.judge
}
model "m" {
  provider = "script"
  name     = %q
  script   = "agent.yaml"
}
model "judge" {
  provider = "script"
  script   = "judge.yaml"
}
`

// An agent that says why its model stopped completes its turn with any words: a
// supervisor whose gate is strict lets its work pass.
func TestATurnIsCompleteWithoutWordsThatSayIt(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		if s.stops == "" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			dir := t.TempDir()
			verdict, err := json.Marshal(`{"verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": false, "score": 1, "confidence": "high", "rationale": "", "missing_artifacts": [], "guidance_tags": []}`)
			e2etest.Must(t, err)
			e2etest.Write(t, dir, map[string]string{
				"experiment.hcl":                         fmt.Sprintf(gated, cmp.Or(s.plugin, s.name), cmp.Or(s.model, "gpt-5.5")),
				"tasks/c/it.yaml":                        "task_id: it\ncategory: c\ntask: Write a file.\nreferences: [references/eval_rule.md]\n",
				"injection/c/it/references/eval_rule.md": "There is a file.\n",
				"judge.yaml":                             "replies:\n  - text: " + string(verdict) + "\n",
				"agent.yaml": "replies:\n  - when: {turn: 0}\n    " + strings.Replace(s.call("I write it.", "mkdir -p results; echo 42 > results/a.txt"), ", tools:", "\n    tools:", 1) +
					"\n  - when: {turn: 1}\n    text: Here you are.\n",
			})
			if code, out, stderr := tree.Berth(t, dir, "run", "--require", "passed = planned"); code != 0 {
				t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
			}
			results, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1", record.ResultFile))
			if err != nil || len(results) != 1 {
				t.Fatalf("%q, %v", results, err)
			}
			if r := e2etest.Result(t, filepath.Dir(results[0])); r.Labels["turn"] != "complete" || r.Labels["gate"] != "open" || r.Labels["status"] != "pass" {
				t.Errorf("labels %v\n%s", r.Labels, e2etest.Read(t, filepath.Dir(results[0]), record.StepsFile))
			}
		})
	}
}
