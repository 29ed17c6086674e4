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

// gateCase is a built-in agent at a turn that it finishes, and at one that is cut off.
type gateCase struct {
	scaffold

	done, cut string // its replies
	solution  bool   // it is the oracle
}

// gateCases returns all built-in agents that work in a sandbox. Those that act on a
// surface mark their last step alike, which their own tests show.
func gateCases() (all []gateCase) {
	const (
		fence = "```"
		waits = "touch begun; sleep 3000"
		wrote = "mkdir -p results; echo 42 > results/a.txt"
	)
	terminal := func(keys, complete string) string {
		b, err := json.Marshal(fmt.Sprintf(`{"analysis": "I see.", "plan": "I go on.", "commands": [{"keystrokes": %q, "duration": 1}], "task_complete": %s}`, keys+"\n", complete))
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	at := func(last, reply string) string { return fmt.Sprintf("  - {when: {last: %q}, %s}\n", last, reply) }
	says := func(text string) string { return fmt.Sprintf("text: %q", text) }
	bash := func(command string) string { return says("I go.\n\n" + fence + "bash\n" + command + "\n" + fence) }
	all = []gateCase{
		{scaffold: scaffold{name: "nop"}},
		{scaffold: scaffold{name: "oracle"}, solution: true},
		{
			scaffold: scaffold{name: "minisweagent", time: 5},
			done:     at("MARK-done", bash(wrote)) + at("Exit code: 0", bash("echo TASK_IS_COMPLETE")), cut: at("MARK-cut", bash(waits)),
		},
		{
			scaffold: scaffold{name: "terminus", time: 10},
			done:     at("MARK-done", "text: "+terminal(wrote, "false")) + at(".", "text: "+terminal("true", "true")), cut: at("MARK-cut", "text: "+terminal(waits, "false")),
		},
	}
	for _, s := range scaffolds {
		last := "text: Here you are."
		if s.finish != "" {
			last = s.call("I submit.", s.finish)
		}
		c := gateCase{
			scaffold: s,
			done:     at("MARK-done", s.call("I write it.", wrote+"; echo WRITTEN")) + at("WRITTEN", last), cut: at("MARK-cut", s.call("I wait.", waits)),
		}
		if s.name == "edict" {
			c.done = at("MARK-done", last) + at(".", last)
		}
		all = append(all, c)
	}
	return all
}

// Whatever agent: a turn that it finished is complete, with any words, and one that
// was cut off is not. So the work of the first passes, and that of the other does not.
func TestTheGateOfEveryAgent(t *testing.T) {
	t.Parallel()
	for _, c := range gateCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.tool != "" {
				needs(t, c.scaffold)
			} else {
				tree.NeedsSandbox(t)
			}
			for name, want := range map[string][2]string{"done": {"complete", "open"}, "cut": {"incomplete", "failed"}} {
				if name == "cut" && c.name == "nop" {
					continue // it never takes long
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r, attempt := c.judged(t, name)
					if r.Labels["turn"] != want[0] || r.Labels["gate"] != want[1] || (r.Outcome == record.Passed) != (name == "done") {
						t.Errorf("%s, labels %v, want %v\n%s\n%s", r.Outcome, r.Labels, want, e2etest.Read(t, attempt, record.TurnsFile), e2etest.Read(t, attempt, record.StepsFile))
					}
				})
			}
		})
	}
}

// judged runs a turn of an agent and returns how it was judged, and the folder of the
// attempt.
func (c *gateCase) judged(t *testing.T, name string) (r *record.Result, attempt string) {
	t.Helper()
	dir := t.TempDir()
	verdict, err := json.Marshal(`{"verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": false, "score": 1, "confidence": "high", "rationale": "", "missing_artifacts": [], "guidance_tags": []}`)
	e2etest.Must(t, err)
	x := fmt.Sprintf(gated, cmp.Or(c.plugin, c.name), cmp.Or(c.model, "gpt-5.5"))
	replies, seconds, solve := c.done, 600, "mkdir -p results; echo 42 > results/a.txt\n"
	if name == "cut" { // some agents ask again while the command goes on
		replies, seconds, solve = c.cut+"  - {when: {last: \".*\"}, text: never, delay: 3000s}\n", cmp.Or(c.time, 45), "sleep 3000\n"
	}
	if c.solution {
		x = strings.Replace(strings.Replace(x, "plugin = \"oracle\"", "plugin = \"oracle\"\n  oracle = true", 1), "path   = \".\"", "path   = \".\"\n  config {\n    solutions = \"solutions\"\n  }", 1)
		seconds = min(seconds, 5)
	}
	e2etest.Write(t, dir, map[string]string{
		"experiment.hcl": x,
		"tasks/c/it.yaml": fmt.Sprintf("task_id: it\ncategory: c\ntask: Write a file. MARK-%s\nreferences: [references/eval_rule.md]\ntimeout_seconds: %d\ncodex: {max_user_followups: 0}\n",
			name, seconds),
		"injection/c/it/references/eval_rule.md": "There is a file.\n",
		"solutions/c/it/solve.sh":                solve,
		"judge.yaml":                             "replies:\n  - text: " + string(verdict) + "\n",
		"agent.yaml":                             "replies:\n" + cmp.Or(replies, "  - text: Nobody asks.\n"),
	})
	if code, out, stderr := tree.Berth(t, dir, "run"); code != 0 {
		t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
	}
	results := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-1", record.ResultFile)
	attempt = filepath.Dir(results[0])
	return e2etest.Result(t, attempt), attempt
}
