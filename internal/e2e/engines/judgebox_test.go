package engines

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A supervisor's own sandbox is an ordinary one: when berth is killed while the
// supervisor works in it, gc removes it with the agent's, and resume makes a new one,
// which is kept over both rounds and removed at the end.
func TestASupervisorsOwnSandbox(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, m.env())
		p.judgeBox(m.plugin)
		s := p.start("run", ".", "--no-live")
		p.until(s, record.PhaseJudge)
		run := p.run()
		if got := m.containers(t, run); len(got) != 2 {
			t.Errorf("while it is judged: %+v; want the agent's and the supervisor's", got)
		}
		kill(t, "berth", s.Process.Pid)
		p.end(s)
		p.clean(m)
		p.berth(0, "resume", "last", "--no-live", "--require", "passed = planned")
		attempts := p.show().Trials[0].Attempts
		r := e2etest.Result(t, attempts[len(attempts)-1].Dir)
		created := 0
		for _, phase := range r.Phases {
			if phase.Name == record.PhaseCreate {
				created++
			}
		}
		if len(attempts) != 2 || r.Outcome != record.Passed || created != 2 {
			t.Errorf("%d attempts, %s, %d sandboxes were created; want 2, passed and 2: %+v", len(attempts), r.Outcome, created, r.Error)
		}
		if left := m.containers(t, run); len(left) > 0 {
			t.Errorf("containers are left: %+v", left)
		}
		p.clean(m)
	})
}

// A dataset in UniClawBench's layout names the image of the supervisor's sandbox, which
// has programs that the agent's has not.
func TestTheImageOfASupervisorsSandbox(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, machineFor(t, m.plugin, debian).env())
		e2etest.Must(t, os.CopyFS(p.dir, os.DirFS(filepath.Join(tree, "examples", "uniclaw"))))
		text := p.read("berth.hcl")
		for old, with := range map[string]string{
			"environment = environment.local\n": "environment = environment." + m.plugin + "\n",
			"agent = [agent.oracle, agent.nop]": "agent = [agent.oracle]",
			`format = "uniclaw"`:                "format = \"uniclaw\"\n  include = [\"103_services/stock\"]",
			`solutions = "solutions"`:           fmt.Sprintf("solutions = \"solutions\"\n    image = %q\n    judge_image = %q", debian, base),
			"  model = model.supervisor\n":      "  model = model.supervisor\n  config {\n    tools = \"sandbox\"\n  }\n",
		} {
			if !strings.Contains(text, old) {
				t.Fatalf("the example has no %q", old)
			}
			text = strings.Replace(text, old, with, 1)
		}
		p.write("berth.hcl", text)
		p.write("supervisor.yaml", `replies:
  - when: {turn: 0}
    tools: [{name: run, arguments: {command: "test -e /etc/debian_version; echo the agents image $?; ls -R attempt/artifacts /tmp_workspace/results | grep -c manifest.json"}}]
  - when: {last: "the agents image 1\\n1"}
    text: '{"verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": false, "score": 1, "confidence": "high", "rationale": "", "missing_artifacts": [], "guidance_tags": []}'
`)
		p.berth(0, "run", ".", "--no-live", "--require", "passed = planned")
		p.clean(m)
	})
}

// judgeBox writes an experiment with a supervisor that works in a sandbox of its
// own, for some seconds in round 1.
func (p *place) judgeBox(plugin string) {
	p.test.Helper()
	p.task("box", `[[metadata.berth.verifiers]]
name = "supervisor"
settings = { rubric = "tests/rubric.md" }
[metadata.berth.interaction]
max_follow_ups = 1
`, "true", "echo 1 > /logs/verifier/reward.txt")
	p.write("tasks/box/task.toml", "artifacts = [\"/app/out\"]\n"+p.read("tasks/box/task.toml"))
	p.write("tasks/box/tests/rubric.md", "RUBRIC\n")
	judgement := func(verdict string) string {
		return fmt.Sprintf(`{"verdict": %q, "attempt_state": "in_progress", "recoverable": true, "score": 1, "confidence": "high", "rationale": "", "missing_artifacts": [], "guidance_tags": []}`, verdict)
	}
	run := func(last, command string) map[string]any {
		return map[string]any{
			"when": map[string]any{"turn": 0, "last": last}, "tools": []any{map[string]any{"name": "run", "arguments": map[string]any{"command": command}}},
		}
	}
	said := func(last, text string) map[string]any {
		return map[string]any{"when": map[string]any{"last": last}, "text": text}
	}
	for name, replies := range map[string][]any{
		"worker.yaml": {
			said("Do it", "```bash\necho TASK_IS_COMPLETE; echo one > /app/out\n```"),
			said("Again", "```bash\necho TASK_IS_COMPLETE; echo two > /app/out\n```"),
		},
		"judge.yaml": {
			run(`"messages_of_the_user_so_far":0,`, "cat attempt/artifacts/app/out; echo noted > /tmp/state; ls /sys/class/net; sleep 5"),
			said(`Output:\none\nlo\n$`, judgement("continue")),
			run(`"messages_of_the_user_so_far":1,`, "cat attempt/artifacts/app/out /tmp/state"),
			said(`Output:\ntwo\nnoted\n$`, judgement("pass")),
			map[string]any{"when": map[string]any{"system": "."}, "text": judgement("fail")},
		},
		"user.yaml": {map[string]any{"text": `{"mode": "instruction", "tone": "neutral", "candidate_feedback": "Again, please.", "public_feedback_points": []}`}},
	} {
		b, err := json.Marshal(map[string]any{"replies": replies})
		if err != nil {
			p.test.Fatal(err)
		}
		p.write(name, string(b)) // JSON is YAML
	}
	p.write("berth.hcl", fmt.Sprintf(judgeBoxExperiment, plugin))
}

const judgeBoxExperiment = `experiment "box" {
  datasets    = [dataset.tasks]
  environment = environment.it
  agent       = agent.worker
  model       = model.worker
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
  success {
    key      = "score"
    at_least = 1
  }
}
environment "it" { plugin = %q }
agent "worker" { plugin = "minisweagent" }
agent "persona" { plugin = "persona" }
verifier "supervisor" {
  model = model.judge
  config {
    tools = "sandbox"
    gate  = "text"
  }
}
user {
  agent = agent.persona
  model = model.user
}
model "worker" {
  provider = "script"
  script   = "./worker.yaml"
}
model "judge" {
  provider = "script"
  script   = "./judge.yaml"
}
model "user" {
  provider = "script"
  script   = "./user.yaml"
}
`
