package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// verdict is a reply of the supervisor's model, with a state and a rationale that
// follow from the verdict unless more says otherwise.
func verdict(word string, score float64, more string) string {
	state := map[string]string{"pass": "complete_and_passed", "continue": "in_progress", "fail": "terminal_failure"}[word]
	m := map[string]any{
		"verdict": word, "attempt_state": state, "recoverable": word == "continue", "score": score, "confidence": "high", "rationale": "",
		"missing_artifacts": []string{}, "guidance_tags": []string{},
	}
	if more != "" {
		var over map[string]any
		if err := json.Unmarshal([]byte(more), &over); err != nil {
			panic(err)
		}
		maps.Copy(m, over)
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

const (
	says     = "echo The task is complete."
	saysLess = "echo still looking"
)

// feedback is a reply of the user's model.
func feedback(text string) string {
	b, err := json.Marshal(map[string]any{"mode": "instruction", "tone": "neutral", "candidate_feedback": text, "public_feedback_points": []string{}})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func reply(last, text string) map[string]any {
	return map[string]any{"when": map[string]any{"last": last}, "text": text}
}

const loopExperiment = `experiment "endings" {
  datasets    = [dataset.loops]
  environment = environment.local
  agent       = agent.greeter
}
dataset "loops" {
  format = "harbor"
  path   = "./tasks"
  success {
    key      = "passed"
    at_least = 1
  }
}
environment "local" { plugin = "local" }
agent "greeter" { plugin = "greeter" }
verifier "supervisor" { model = model.judge }
agent "persona" { plugin = "persona" }
user {
  agent = agent.persona
  model = model.user
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

func pretty(e *record.Error) string {
	if e == nil {
		return ""
	}
	return e.Message
}

// In UniClawBench a simulated user that fails is replaced by a fixed line in the
// language of the task, unless the experiment says something else.
func TestAUserThatFailsInUniClawBench(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	for word, want := range map[string]record.Outcome{"": record.Passed, "user_error": record.UserError} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			loopPlugins(t, dir, "greeter")
			x := strings.NewReplacer(
				"harbor", "uniclaw", "./tasks", ".", "{ plugin = \"local\" }", "{\n  plugin  = \"local\"\n  network = \"none\"\n}",
				"{ model = model.judge }", "{\n  model = model.judge\n  config {\n    gate = \"text\"\n  }\n}", // a shell does not understand the fixed line
			).Replace(loopExperiment)
			if word != "" {
				x = strings.Replace(x, "model = model.user\n}", fmt.Sprintf("model = model.user\n  on_user_error = %q\n}", word), 1)
			}
			judge, err := json.Marshal(map[string]any{"replies": []any{
				reply(`"messages_of_the_user_so_far":0,`, verdict("continue", .4, `{"attempt_state": "incomplete"}`)), reply(`"messages_of_the_user_so_far":1,`, verdict("pass", 1, "")),
			}})
			e2etest.Must(t, err)
			e2etest.Write(t, dir, map[string]string{
				"berth.hcl":                              x,
				"judge.yaml":                             string(judge),
				"user.yaml":                              "replies: [{when: {last: .*}, text: I have no idea.}]\n",
				"tasks/c/it.yaml":                        "task_id: it\ncategory: c\ntask: 'echo 任务 >/dev/null; echo The task is complete.; true'\nreferences: [references/eval_rule.md]\n",
				"injection/c/it/references/eval_rule.md": "It is complete.\n",
			})
			berthWith(t, dir, nil, "run")
			turns := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-1", record.TurnsFile)
			r, said := e2etest.Result(t, filepath.Dir(turns[0])), e2etest.Read(t, turns[0])
			noted := slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "user_failed" })
			if fixed := strings.Contains(said, "请把剩下的工作做完"); r.Outcome != want || fixed != (want == record.Passed) || noted != fixed {
				t.Errorf("%s, want %s: %s\n%s\n%+v", r.Outcome, want, pretty(r.Error), said, r.Findings)
			}
		})
	}
}
