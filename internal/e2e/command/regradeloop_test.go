package command

import (
	"encoding/json"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// Another supervisor judges the stored rounds of a closed loop. The agent and the
// user are not asked again, and what the agent did and used stays.
func TestAClosedLoopIsRegraded(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	loopPlugins(t, dir, "greeter")
	script := func(judged ...string) string {
		var replies []map[string]any
		for i, text := range judged {
			replies = append(replies, reply(`"messages_of_the_user_so_far":`+string(rune('0'+i))+`,`, text))
		}
		b, err := json.Marshal(map[string]any{"replies": replies})
		e2etest.Must(t, err)
		return string(b)
	}
	const task = "tasks/loop/"
	e2etest.Write(t, dir, map[string]string{
		"berth.hcl":                            loopExperiment,
		"judge.yaml":                           script(verdict("continue", .4, ""), verdict("pass", 1, "")),
		"user.yaml":                            `{"replies": [{"text": ` + quoted(t, feedback("echo two > /logs/artifacts/n; "+says)) + `}]}`,
		task + "instruction.md":                "echo one > /logs/artifacts/n; " + says + "\n",
		task + "environment/Dockerfile":        "FROM scratch\n",
		task + "tests/references/eval_rule.md": "n says two.\n",
		task + "task.toml": `schema_version = "1.4"
[task]
name = "e/loop"
[agent]
timeout_sec = 60
[[metadata.berth.verifiers]]
name = "supervisor"
settings = { rubric = "tests/references/eval_rule.md" }
[[metadata.berth.verifiers]]
name = "loop-result"
settings = { threshold = 0.9 }
[metadata.berth.interaction]
max_follow_ups = 2
`,
	})
	attempt := func(n string, outcome record.Outcome, status string, final float64) record.Result {
		t.Helper()
		found := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-"+n)
		r := e2etest.Result(t, found[0])
		if r.Outcome != outcome || r.Labels["status"] != status || r.Scores["final_score"] != final {
			t.Errorf("%s, %q, %g; want %s, %q, %g: %s", r.Outcome, r.Labels["status"], r.Scores["final_score"], outcome, status, final, pretty(r.Error))
		}
		return *r
	}
	berthWith(t, dir, nil, "run").want(t, 0)
	first := attempt("1", record.Passed, "pass", 1)
	for i, tt := range []struct {
		judged  []string
		outcome record.Outcome
		status  string
		final   float64
		rounds  int
	}{
		{[]string{verdict("continue", .3, ""), verdict("fail", .2, "")}, record.Failed, "fail", .3, 2},
		{[]string{verdict("pass", .95, "")}, record.Passed, "pass", .95, 1},
		{[]string{verdict("continue", .3, ""), verdict("continue", .5, "")}, record.Failed, "executor_incomplete", .5, 2},
	} {
		e2etest.Write(t, dir, map[string]string{"judge.yaml": script(tt.judged...)})
		berthWith(t, dir, nil, "regrade", "last", "--experiment", "berth.hcl").want(t, 0)
		berthWith(t, dir, nil, "audit", "last").want(t, 0)
		r := attempt(string(rune('2'+i)), tt.outcome, tt.status, tt.final)
		judged := 0
		for _, p := range r.Phases {
			switch p.Name {
			case record.PhaseJudge:
				judged++
			case record.PhaseTurn, record.PhaseUser:
				t.Errorf("a phase %s", p.Name)
			default:
			}
		}
		if judged != tt.rounds || r.AgentTime != first.AgentTime || r.Regraded == nil || r.Regraded.Attempt != 1 {
			t.Errorf("%d rounds, %s of the agent, origin %+v; want %d, %s of attempt 1", judged, r.AgentTime, r.Regraded, tt.rounds, first.AgentTime)
		}
	}
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(text)
	e2etest.Must(t, err)
	return string(b)
}
