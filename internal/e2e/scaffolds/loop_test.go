package scaffolds

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// loopExperiment is the same for every agent but for one word.
const loopExperiment = `experiment "loop" {
  datasets    = [dataset.claw]
  environment = environment.one
  agent       = agent.one
  model       = model.worker
}
dataset "claw" {
  format = "uniclaw"
  path   = "bench"
}
environment "one" {
  plugin = "local"
  network = "none"
}
agent "one" {
  plugin = %q
}
verifier "supervisor" {
  model = model.supervisor
}
user {
  agent = agent.persona
  model = model.user
}
agent "persona" {
  plugin = "persona"
}
model "worker" {
  provider = "script"
  name     = "gpt-5.5"
  script   = "worker.yaml"
}
model "supervisor" {
  provider = "script"
  script   = "supervisor.yaml"
}
model "user" {
  provider = "script"
  script   = "user.yaml"
}
`

// Texts of the loop.
const (
	followUp = "FOLLOW-UP: please write two.txt, too."
	finished = "I have finished the request."
	inResult = "mkdir -p /tmp_workspace/results && cd /tmp_workspace/results && "
)

// supervisorScript passes work that has two.txt, which the agent is told of by the
// user only.
const supervisorScript = `replies:
  - when: {turn: 0}
    tools: [{name: read, arguments: {file: attempt/artifacts/results/two.txt}}]
  - when: {turn: 1, last: NOTE-TWO}
    text: '{"verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": false, "score": 1, "confidence": "high", "rationale": "Both are there.", "missing_artifacts": [], "guidance_tags": []}'
  - when: {turn: 1}
    text: '{"verdict": "continue", "attempt_state": "incomplete", "recoverable": true, "score": 0.5, "confidence": "high", "rationale": "A file is missing.", "missing_artifacts": [], "guidance_tags": []}'
`

// looped writes the experiment of a closed loop for a scaffold.
func (s scaffold) looped(t *testing.T, dir string) {
	t.Helper()
	replies := s.loop
	if len(replies) == 0 {
		replies = []string{
			"  - {when: {turn: 0, last: MARK-loop}, " + s.call("I begin.", inResult+"echo NOTE-ONE | tee one.txt") + ", " + usage + "}\n",
			"  - {when: {turn: 1, last: NOTE-ONE}, text: " + fmt.Sprintf("%q", word+" "+finished) + ", " + usage + "}\n",
			"  - {when: {turn: 2, last: FOLLOW-UP}, " + s.call("I go on.", inResult+"echo NOTE-TWO | tee two.txt") + ", " + usage + "}\n",
			"  - {when: {turn: 3, last: NOTE-TWO}, text: " + fmt.Sprintf("%q", finished) + ", " + usage + "}\n",
		}
	}
	e2etest.Write(t, dir, map[string]string{
		"berth.hcl":       fmt.Sprintf(loopExperiment, s.name),
		"worker.yaml":     "replies:\n" + strings.Join(replies, ""),
		"supervisor.yaml": supervisorScript,
		"user.yaml":       fmt.Sprintf("replies:\n  - text: '{\"mode\": \"instruction\", \"tone\": \"neutral\", \"candidate_feedback\": %q, \"public_feedback_points\": []}'\n", followUp),
		"bench/tasks/101_loop/notes.yaml": "task_id: notes\ncategory: 101_loop\ntimeout_seconds: 1800\nmax_total_seconds: 3600\nsuccess_threshold: 0.9\n" +
			"task: Write the notes that are wanted to results. MARK-loop\nreferences: [references/eval_rule.md]\ncodex: {max_user_followups: 2}\n",
		"bench/injection/101_loop/notes/references/eval_rule.md": "one.txt: 0.50, two.txt: 0.50\n",
	})
}

// court are the replies to the roles of EDICT. In the first turn the task goes over
// the board to an office, which writes the first file. In the second taizi does what
// the user asks for.
func court() (replies []string) {
	claw := scaffold{tool: "exec", arg: "command"}
	board := func(args string) string {
		return "/opt/berth/agent/bin/node /var/lib/berth-agent/edict/board.mjs " + args
	}
	of := func(turn int, last, what string) {
		replies = append(replies, fmt.Sprintf("  - {when: {turn: %d, last: %q}, %s, %s}\n", turn, last, what, usage))
	}
	says := func(text string) string { return fmt.Sprintf("text: %q", text) }
	of(0, "You are taizi(?s:.*)MARK-loop", claw.call("I put it on the board.", board("add 'Write one.txt'")))
	of(1, `"state": "Zhongshu"`, says("It is on the board."))
	of(0, "You are zhongshu(?s:.*)MARK-loop", claw.call("I plan.", board("set 1 state=Menxia org=menxia now='gongbu writes'; echo OUT-zhongshu")))
	of(1, "OUT-zhongshu", says("The plan is there."))
	of(0, "You are menxia(?s:.*)gongbu writes", claw.call("I check.", board("set 1 state=Assigned org=shangshu; echo OUT-menxia")))
	of(1, "OUT-menxia", says("The plan is good."))
	of(0, "You are shangshu(?s:.*)is in state Assigned", claw.call("I assign.", board("set 1 org=gongbu; echo OUT-assigned")))
	of(1, "OUT-assigned", says("The office has it."))
	of(0, "You are gongbu(?s:.*)is in state Assigned", claw.call("I write.", "[ $(pwd) = /tmp_workspace ] && [ ! -e gongbu ] && "+inResult+"echo NOTE-ONE >one.txt && "+board("set 1 state=Review org=shangshu output=one.txt; echo OUT-gongbu")))
	of(1, "OUT-gongbu", says("It is written."))
	of(2, "You are shangshu(?s:.*)is in state Review", claw.call("I look.", board("set 1 state=Done; echo OUT-review")))
	of(3, "OUT-review", says("It is done."))
	of(2, "all tasks have ended", says(word+" "+finished))
	of(3, "FOLLOW-UP", claw.call("I go on.", inResult+"echo NOTE-TWO | tee two.txt"))
	of(4, "NOTE-TWO", says(finished))
	return replies
}

// loops are the agents of the closed loop, which differ by one word of the
// experiment.
var loops = []string{"nanobot", "openclaw", "edict"}

// An agent in a closed loop continues one session: the request after the user's
// message has what was said and done in the first turn.
func TestTheClosedLoop(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		if !slices.Contains(loops, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			dir := t.TempDir()
			s.looped(t, dir)
			if code, out, stderr := tree.Berth(t, dir, "run", "--require", "passed = planned"); code != 0 {
				t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
			}
			s.continues2(t, dir)
		})
	}
}

// continues2 checks the only attempt of the run in dir: two turns in one session.
func (s scaffold) continues2(t *testing.T, dir string) {
	t.Helper()
	found := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-1")
	attempt := found[0]
	r := e2etest.Result(t, attempt)
	if r.Outcome != record.Passed || r.AgentEnd != record.Yielded {
		t.Fatalf("%s / %s: %+v %+v\nturns: %s\nprinted: %.6000s\n%s", r.Outcome, r.AgentEnd, r.Error, r.Findings, e2etest.Read(t, attempt, "turns.jsonl"),
			e2etest.Read(t, attempt, "agent/stdout.jsonl"), e2etest.Read(t, attempt, "agent/stderr.txt"))
	}
	if n := strings.Count(e2etest.Read(t, attempt, "turns.jsonl"), `"from":"user"`); n != 1 {
		t.Errorf("%d messages of the user, want 1:\n%s", n, e2etest.Read(t, attempt, "turns.jsonl"))
	}
	first := ""
	for _, x := range e2etest.Lines[gateway.Exchange](t, attempt, record.ExchangesFile) {
		if x.Role != "agent" {
			continue
		}
		body, err := recording.Fetch(filepath.Join(attempt, record.ModelDir), x.Request)
		e2etest.Must(t, err)
		if first == "" && strings.Contains(string(body), "FOLLOW-UP") {
			first = string(body)
		}
	}
	for _, want := range []string{"MARK-loop", word, "FOLLOW-UP"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first request of turn 2 lacks %q: %.6000s", want, first)
		}
	}
	if s.name == "edict" {
		s.chained(t, attempt)
	}
	raw := []byte(e2etest.Read(t, attempt, "trajectory.json"))
	for _, v := range trajectory.Validate(raw) {
		t.Errorf("trajectory: %s", v)
	}
	for _, f := range r.Findings {
		if slices.Contains([]string{"trajectory", "usage_differs", "other_model"}, f.Code) {
			t.Errorf("finding %s: %s", f.Code, f.Text)
		}
	}
}

// chained checks that the roles of EDICT are sub-agents, with trajectories of their
// own.
func (s scaffold) chained(t *testing.T, attempt string) {
	t.Helper()
	var tr trajectory.Trajectory
	e2etest.Must(t, json.Unmarshal([]byte(e2etest.Read(t, attempt, "trajectory.json")), &tr))
	var names []string
	for _, step := range tr.Steps {
		if step.Observation == nil {
			continue
		}
		for _, result := range step.Observation.Results {
			for _, ref := range result.Subagents {
				names = append(names, ref.SessionID)
				raw := []byte(e2etest.Read(t, attempt, ref.TrajectoryPath))
				var sub trajectory.Trajectory
				if e2etest.Must(t, json.Unmarshal(raw, &sub)); len(trajectory.Validate(raw)) > 0 || len(sub.Steps) != 3 || len(sub.Steps[1].ToolCalls) != 1 {
					t.Errorf("%s: %s", ref.TrajectoryPath, raw)
				}
			}
		}
	}
	if want := []string{"1-2-zhongshu", "1-3-menxia", "1-4-shangshu", "1-5-gongbu", "1-6-shangshu"}; !slices.Equal(names, want) {
		t.Errorf("sub-agents %q, want %q", names, want)
	}
}
