package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// ending is a task, what the agent and the user do, and how it has to end. The
// agent runs each message as a command of a shell and says what that prints.
type ending struct {
	name      string
	says      []string // commands: the first is the instruction, the others are the user's messages
	judged    []string // by the supervisor's model, a round each
	settings  string   // of the supervisor, TOML
	result    string   // of loop-result, TOML
	followUps int
	total     int // seconds
	outcome   record.Outcome
	status    string
	final     float64
	turns     int
	user      []string // what the user's model replies, if not as says has it
}

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

// endings are the ways in which a loop can end that publishedEnds have not.
func endings() []ending {
	all := []ending{
		{name: "best-counts", says: []string{says, says, says}, judged: []string{verdict("continue", .7, ""), verdict("continue", .92, ""), verdict("continue", .8, "")}, followUps: 2, outcome: record.Passed, status: "pass", final: .92},
		{name: "fail-after-good", says: []string{says, says}, judged: []string{verdict("continue", .95, ""), verdict("fail", .1, "")}, followUps: 2, outcome: record.Failed, status: "fail", final: .95},
		{name: "gate-nudges", says: []string{saysLess, ""}, judged: []string{verdict("pass", 1, ""), verdict("continue", .3, "")}, settings: `deferred = "nudge"`, followUps: 1, outcome: record.Passed, status: "pass", final: 1, turns: 2},
		{name: "gate-text", says: []string{saysLess}, judged: []string{verdict("pass", 1, "")}, settings: `gate = "text"`, outcome: record.Passed, status: "pass", final: 1},
		{name: "gate-bad-exit-long", says: []string{"printf %0200d 0; exit 3"}, judged: []string{verdict("pass", 1, "")}, settings: `gate = "long_text"`, outcome: record.Passed, status: "pass", final: 1},
		{name: "completed-only", says: []string{saysLess, says}, judged: []string{verdict("continue", .95, ""), verdict("continue", .3, "")}, result: "completed_only = true", followUps: 1, outcome: record.Failed, status: "budget_exhausted", final: .3},
		{name: "never-completed", says: []string{saysLess, saysLess + " again"}, judged: []string{verdict("continue", .95, ""), verdict("continue", .3, "")}, followUps: 1, outcome: record.Passed, status: "pass", final: .95},
		{name: "total", says: []string{says, "echo now; sleep 60"}, judged: []string{verdict("continue", .4, ""), verdict("continue", .5, "")}, followUps: 2, total: 4, outcome: record.Failed, status: "global_timeout", final: .5},
		{
			name: "user-writes-nothing", says: []string{says, ""}, judged: []string{verdict("continue", .4, ""), verdict("fail", .2, "")}, followUps: 1, outcome: record.Failed, status: "fail", final: .4,
			user: []string{feedback("")},
		},
		{name: "user-replies-prose", says: []string{says}, judged: []string{verdict("continue", .4, "")}, followUps: 1, outcome: record.UserError, user: []string{"I have no idea."}},
		{name: "no-judgement", says: []string{says}, judged: []string{"It looks good to me."}, followUps: 1, outcome: record.JudgeError},
	}
	for i := range all {
		if all[i].turns == 0 {
			all[i].turns = len(all[i].says)
		}
	}
	return all
}

// Further ways in which a loop of a supervisor and a simulated user can end.
func TestHowLoopsOfTurnsEnd(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	loopPlugins(t, dir, "greeter")
	files := map[string]string{"berth.hcl": loopExperiment}
	var judge, user []map[string]any
	for _, e := range endings() {
		name := "ENDING-" + e.name + "_"
		for i, text := range e.judged {
			judge = append(judge, reply(fmt.Sprintf(`(?s)%s.*"messages_of_the_user_so_far":%d,`, name, i), text))
		}
		for i, say := range e.says[1:] {
			if len(e.user) == 0 {
				user = append(user, reply(fmt.Sprintf(`(?s)assistant answered\s+%s %d`, name, i), feedback("echo "+name+" "+fmt.Sprint(i+1)+"; "+say)))
			}
		}
		for i, text := range e.user {
			user = append(user, reply(fmt.Sprintf(`(?s)assistant answered\s+%s %d`, name, i), text))
		}
		task := filepath.Join("tasks", e.name)
		files[filepath.Join(task, "instruction.md")] = "echo " + name + " 0; " + e.says[0] + "\n"
		files[filepath.Join(task, "environment", "Dockerfile")] = "FROM scratch\n"
		files[filepath.Join(task, "tests", "references", "eval_rule.md")] = "It is complete.\n"
		files[filepath.Join(task, "task.toml")] = loopTask(&e)
	}
	judge = append(judge, reply("could not be read", "It still looks good."))
	user = append(user, reply("could not be read", "I still have no idea."))
	results, run := loopResults(t, dir, files, judge, user)
	if len(results) != len(endings()) {
		t.Fatalf("%d results of %d tasks\n%s\n%s", len(results), len(endings()), run.out, run.stderr)
	}
	got := map[string]record.Result{}
	for _, file := range results {
		var r record.Result
		e2etest.Must(t, json.Unmarshal([]byte(e2etest.Read(t, file)), &r))
		got[r.Task] = r
	}
	for _, e := range endings() {
		t.Run(e.name, func(t *testing.T) { e.check(t, got["e/"+e.name]) })
	}
}

func (e *ending) check(t *testing.T, r record.Result) {
	t.Helper()
	turns, asked := 0, 0
	for _, p := range r.Phases {
		switch p.Name {
		case record.PhaseTurn:
			turns++
		case record.PhaseUser:
			asked++
		default:
		}
	}
	if e.outcome.Measured() && asked != turns-1 { // nobody is asked for a message that is not sent
		t.Errorf("the user was asked %d times between %d turns", asked, turns)
	}
	final := r.Scores["final_score"]
	if r.Outcome != e.outcome || r.Labels["status"] != e.status || math.Abs(final-e.final) > 1e-9 || turns != e.turns {
		t.Errorf("%s, status %q, final score %g, %d turns; want %s, %q, %g, %d\n%s", r.Outcome, r.Labels["status"], final, turns, e.outcome, e.status, e.final, e.turns, pretty(r.Error))
	}
}

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

// loopTask is the task.toml of an ending.
func loopTask(e *ending) string {
	settings := []string{`rubric = "tests/references/eval_rule.md"`}
	if e.settings != "" {
		settings = append(settings, e.settings)
	}
	result := []string{"threshold = 0.9"}
	if e.result != "" {
		result = append(result, e.result)
	}
	total := ""
	if e.total > 0 {
		total = fmt.Sprintf("total_sec = %d\n", e.total)
	}
	return fmt.Sprintf(`schema_version = "1.4"
[task]
name = "e/%s"
[agent]
timeout_sec = 60
[[metadata.berth.verifiers]]
name = "supervisor"
settings = { %s }
[[metadata.berth.verifiers]]
name = "loop-result"
settings = { %s }
[metadata.berth.interaction]
max_follow_ups = %d
%s`, e.name, strings.Join(settings, ", "), strings.Join(result, ", "), e.followUps, total)
}

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

// loopResults runs an experiment in dir, whose supervisor and user have these replies,
// and returns the files of its results.
func loopResults(t *testing.T, dir string, files map[string]string, judge, user []map[string]any) ([]string, result) {
	t.Helper()
	for name, replies := range map[string][]map[string]any{"judge.yaml": judge, "user.yaml": user} {
		b, err := json.Marshal(map[string]any{"replies": replies})
		e2etest.Must(t, err)
		files[name] = string(b) // JSON is YAML
	}
	e2etest.Write(t, dir, files)
	run := berthWith(t, dir, nil, "run", "--in-flight", "4")
	results, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1", record.ResultFile))
	e2etest.Must(t, err)
	return results, run
}
