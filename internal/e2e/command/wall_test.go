package command

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// What each side of the wall must not know. The words are in the files, settings,
// verdicts and thoughts of wallFiles.
var (
	hiddenFromBoth  = []string{"MARK-RUBRIC", "MARK-INSTRUCTIONS", "MARK-RATIONALE", "MARK-MISSING", "MARK-TAG", "credential_hygiene", "0.123456", "MARK-SOLUTION", "MARK-ENV"}
	hiddenFromAgent = append([]string{"MARK-PERSONA", "MARK-POINT"}, hiddenFromBoth...)
	hiddenFromUser  = append([]string{"MARK-THOUGHT"}, hiddenFromBoth...)
)

// The agent and the user search all that they can reach for what only the
// supervisor may know. Nothing of it is in any request of theirs, nor in the
// messages between them.
func TestTheWallBetweenSupervisorAndUser(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	e2etest.Write(t, dir, wallFiles())
	berthWith(t, dir, nil, "run", "--require", "passed = planned").want(t, 0)
	attempts, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1"))
	e2etest.Must(t, err)
	if len(attempts) != 1 {
		t.Fatalf("attempts %q", attempts)
	}
	asked := map[string]string{}
	for line := range strings.Lines(e2etest.Read(t, attempts[0], record.ExchangesFile)) {
		var x gateway.Exchange
		e2etest.Must(t, json.Unmarshal([]byte(line), &x))
		b, err := recording.Fetch(filepath.Join(attempts[0], record.ModelDir), x.Request)
		e2etest.Must(t, err)
		asked[x.Role] += string(b) + "\n"
	}
	for role, hidden := range map[string][]string{"agent": hiddenFromAgent, "user": hiddenFromUser} {
		if leaked := in(asked[role], hidden); asked[role] == "" || len(leaked) > 0 {
			t.Errorf("requests of the %s (%d bytes) have %q", role, len(asked[role]), leaked)
		}
	}
	if leaked := in(e2etest.Read(t, attempts[0], record.TurnsFile), hiddenFromAgent); len(leaked) > 0 {
		t.Errorf("the messages have %q", leaked)
	}
	// The words are found where they may be, so the checks above can fail.
	wanted := map[string][]string{
		"judge": {"MARK-RUBRIC", "MARK-INSTRUCTIONS", "MARK-RATIONALE", "MARK-MISSING", "credential_hygiene", "0.123456", "MARK-THOUGHT"},
		"user":  {"MARK-PERSONA", "wall.txt", "said aloud"}, "agent": {"wall.txt", "Add a second line."},
	}
	for role, words := range wanted {
		if found := in(asked[role], words); len(found) != len(words) {
			t.Errorf("requests of the %s have only %q of %q", role, found, words)
		}
	}
}

// in returns which of the words a text has.
func in(text string, words []string) (found []string) {
	for _, w := range words {
		if strings.Contains(text, w) {
			found = append(found, w)
		}
	}
	return found
}

// wallFiles are an experiment and a task whose hidden parts hold words that are
// looked for.
func wallFiles() map[string]string {
	const look = `echo here > out.txt; echo wall.txt; grep -rshoa 'MA[R]K-[A-Z]*' /app /tests /logs /solution /tmp /root /home /berth 2>/dev/null; env | grep -a 'MA[R]K'; echo searched`
	return map[string]string{
		"berth.hcl": wallExperiment,
		"tasks/wall/task.toml": `schema_version = "1.4"
artifacts = ["/app/out.txt"]
[task]
name = "w/wall"
[agent]
timeout_sec = 60
[environment]
workdir = "/app"
[verifier.env]
KEY = "MARK-ENV"
[[metadata.berth.verifiers]]
name = "supervisor"
settings = { rubric = "tests/references/eval_rule.md", instructions = "MARK-INSTRUCTIONS: be strict." }
[[metadata.berth.verifiers]]
name = "loop-result"
settings = { threshold = 0.9 }
[metadata.berth.interaction]
max_follow_ups = 1
persona = "tests/persona.md"
show = ["/app/out.txt"]
`,
		"tasks/wall/instruction.md":                "Write out.txt.\n",
		"tasks/wall/environment/Dockerfile":        "FROM scratch\nWORKDIR /app\n",
		"tasks/wall/tests/references/eval_rule.md": "MARK-RUBRIC: two lines.\n",
		"tasks/wall/tests/persona.md":              "I am MARK-PERSONA.\n",
		"tasks/wall/solution/solve.sh":             "#!/bin/sh\n# MARK-SOLUTION\n",
		"worker.yaml": `replies:
  - when: {turn: 0}
    thinking: MARK-THOUGHT
    text: "This is said aloud.\n\n` + "```bash\\n" + strings.ReplaceAll(look, `"`, `\"`) + "\\n```" + `"
  - when: {last: searched}
    text: "` + "```bash\\necho TASK_IS_COMPLETE\\n```" + `"
  - when: {last: Add a second line}
    text: "` + "```bash\\necho more >> out.txt; echo TASK_IS_COMPLETE\\n```" + `"
`,
		"judge.yaml": `replies:
  - when: {turn: 0}
    tools: [{name: search, arguments: {pattern: "."}}, {name: read, arguments: {file: tests/references/eval_rule.md}}]
  - when: {last: "out.txt:2"}
    text: '{"verdict": "continue", "attempt_state": "in_progress", "recoverable": true, "score": 0.95, "confidence": "high", "rationale": "MARK-RATIONALE", "missing_artifacts": [], "guidance_tags": []}'
  - when: {}
    text: '{"verdict": "continue", "attempt_state": "in_progress", "recoverable": true, "score": 0.123456, "confidence": "high", "rationale": "MARK-RATIONALE", "missing_artifacts": ["MARK-MISSING"], "guidance_tags": ["credential_hygiene", "MARK-TAG"]}'
`,
		"user.yaml": `replies:
  - when: {turn: 0}
    tools: [{name: search, arguments: {pattern: "."}}, {name: list, arguments: {folder: ""}}, {name: read, arguments: {file: attempt/artifacts/app/out.txt}}]
  - when: {last: "."}
    text: '{"mode": "instruction", "tone": "neutral", "candidate_feedback": "Add a second line.", "public_feedback_points": ["MARK-POINT"]}'
`,
	}
}

const wallExperiment = `experiment "wall" {
  datasets    = [dataset.walls]
  environment = environment.local
  agent       = agent.worker
  model       = model.worker
}
dataset "walls" {
  format = "harbor"
  path   = "./tasks"
  success {
    key      = "passed"
    at_least = 1
  }
}
environment "local" { plugin = "local" }
agent "worker" { plugin = "minisweagent" }
verifier "supervisor" {
  model = model.judge
  config {
    handoff_score = false
  }
}
agent "persona" { plugin = "persona" }
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
