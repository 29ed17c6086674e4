package command

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// wallSecret is a variable of the host that only the verifiers get. In what is
// stored, it is masked.
const wallSecret = "MARK-SECRET-0123456789abcdef"

// What each side of the wall must not know. The words are in the files, settings,
// verdicts, variables and thoughts of wallFiles.
var (
	hiddenFromBoth = []string{
		"MARK-RUBRIC", "MARK-NOTES", "MARK-INSTRUCTIONS", "MARK-RATIONALE", "MARK-MISSING", "MARK-TAG", "credential_hygiene", "0.123456", "0.987654",
		"MARK-SOLUTION", "MARK-ENV", "MARK-SECRET", strings.Repeat("*", len(wallSecret)),
	}
	hiddenFromAgent = append([]string{"MARK-PERSONA", "MARK-POINT"}, hiddenFromBoth...)
	hiddenFromUser  = append([]string{"MARK-THOUGHT"}, hiddenFromBoth...)
)

// The agent, in each of its turns, and the user search all that they can reach for
// what only the supervisor may know. Nothing of it is in any request of theirs, nor
// in the handoffs and messages between them.
func TestTheWallBetweenSupervisorAndUser(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	e2etest.Write(t, dir, wallFiles())
	berthWith(t, dir, []string{"WALL_SECRET=" + wallSecret}, "run", "--allow-env", "WALL_SECRET", "--require", "passed = planned").want(t, 0)
	attempts := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-1")
	asked := map[string]string{}
	for _, x := range e2etest.Lines[gateway.Exchange](t, attempts[0], record.ExchangesFile) {
		b, err := recording.Fetch(filepath.Join(attempts[0], record.ModelDir), x.Request)
		e2etest.Must(t, err)
		asked[x.Role] += string(b) + "\n"
	}
	for role, hidden := range map[string][]string{"agent": hiddenFromAgent, "user": hiddenFromUser} {
		if leaked := leaks(asked[role], hidden); asked[role] == "" || len(leaked) > 0 {
			t.Errorf("requests of the %s (%d bytes) have %q", role, len(asked[role]), leaked)
		}
	}
	if leaked := leaks(e2etest.Read(t, attempts[0], record.TurnsFile), hiddenFromAgent); len(leaked) > 0 {
		t.Errorf("the messages have %q", leaked)
	}
	handoffs := 0
	for _, v := range e2etest.Lines[record.Verdict](t, attempts[0], record.VerdictsFile) {
		if leaked := leaks(v.Handoff, hiddenFromUser); len(leaked) > 0 {
			t.Errorf("a handoff has %q: %s", leaked, v.Handoff)
		}
		if v.Handoff != "" {
			handoffs++
		}
	}
	// The words are found where they may be, so the checks above can fail.
	wanted := map[string][]string{
		"judge": {"MARK-RUBRIC", "MARK-NOTES", "MARK-INSTRUCTIONS", "MARK-RATIONALE", "MARK-MISSING", "credential_hygiene", "0.123456", "MARK-THOUGHT"},
		"user":  {"MARK-PERSONA", "wall.txt", "said aloud"}, "agent": {"wall.txt", "Add a second line."},
	}
	if n := strings.Count(asked["agent"], "MARK_PUBLIC"); handoffs != 2 || n < 3 { // once in the requests of turn 1, and once more in those of turn 2
		t.Errorf("%d handoffs; the agent found its own word %d times", handoffs, n)
	}
	for role, words := range wanted {
		if found := in(asked[role], words); len(found) != len(words) {
			t.Errorf("requests of the %s have only %q of %q", role, found, words)
		}
	}
}

// leaks returns which of the words a text has, as they are or as the agent prints
// them: with "_", so that a secret is not masked.
func leaks(text string, words []string) []string {
	all := slices.Clone(words)
	for _, w := range words {
		all = append(all, strings.ReplaceAll(w, "-", "_"))
	}
	return in(text, all)
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
	// All but the programs of the system, and what is known of other processes. The
	// expression does not match itself.
	const (
		marks = `MA[R]K-[A-Z]*|credential_h[y]giene|0[.]12[3]456|0[.]98[7]654`
		all   = `(for d in /*; do case $d in /proc|/sys|/dev|/usr|/lib*|/bin|/sbin) ;; *) grep -rshoaE '` + marks + `' $d;; esac; done; ` +
			`cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -aoE '` + marks + `'; env | grep -oE '` + marks + `') | sed s/-/_/; echo searched`
		look  = `echo here > out.txt; printf %sPUBLIC MARK- > public.txt; echo wall.txt; ` + all
		again = `echo more >> out.txt; ` + all
	)
	command := func(sh string) string { return "```bash\\n" + strings.ReplaceAll(sh, `"`, `\"`) + "\\n```" }
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
SECRET = "${WALL_SECRET}"
[[metadata.berth.verifiers]]
name = "supervisor"
settings = { rubric = "tests/references/eval_rule.md", instructions = "MARK-INSTRUCTIONS: be strict." }
[[metadata.berth.verifiers]]
name = "loop-result"
settings = { threshold = 0.987654 }
[metadata.berth.interaction]
max_follow_ups = 1
persona = "tests/persona.md"
show = ["/app/out.txt"]
`,
		"tasks/wall/instruction.md":                "Write out.txt.\n",
		"tasks/wall/environment/Dockerfile":        "FROM scratch\nWORKDIR /app\n",
		"tasks/wall/tests/references/eval_rule.md": "MARK-RUBRIC: two lines.\n",
		"tasks/wall/tests/references/notes.md":     "MARK-NOTES: in the second line is more.\n",
		"tasks/wall/tests/persona.md":              "I am MARK-PERSONA.\n",
		"tasks/wall/solution/solve.sh":             "#!/bin/sh\n# MARK-SOLUTION\n",
		"worker.yaml": `replies:
  - when: {turn: 0}
    thinking: MARK-THOUGHT
    text: "This is said aloud.\n\n` + command(look) + `"
  - when: {last: searched}
    text: "` + command("echo TASK_IS_COMPLETE") + `"
  - when: {last: Add a second line}
    text: "` + command(again) + `"
`,
		"judge.yaml": `replies:
  - when: {turn: 0}
    tools: [{name: search, arguments: {pattern: "."}}, {name: read, arguments: {file: tests/references/eval_rule.md}}, {name: read, arguments: {file: tests/references/notes.md}}]
  - when: {last: "out.txt:2"}
    text: '{"verdict": "continue", "attempt_state": "in_progress", "recoverable": true, "score": 0.99, "confidence": "high", "rationale": "MARK-RATIONALE", "missing_artifacts": [], "guidance_tags": []}'
  - when: {}
    text: '{"verdict": "continue", "attempt_state": "in_progress", "recoverable": true, "score": 0.123456, "confidence": "high", "rationale": "MARK-RATIONALE", "missing_artifacts": ["MARK-MISSING"], "guidance_tags": ["credential_hygiene", "MARK-TAG"]}'
`,
		"user.yaml": `replies:
  - when: {turn: 0}
    tools: [{name: search, arguments: {pattern: '` + marks + `'}}, {name: search, arguments: {pattern: "wall[.]txt|said aloud"}}, {name: list, arguments: {folder: ""}}, {name: read, arguments: {file: attempt/artifacts/app/out.txt}}]
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
