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
	"github.com/berth-eval/berth/internal/testlevel"
)

// A supervisor runs commands in a sandbox of its own: it opens a database that the
// agent made, which no other tool can read. What it wrote there in round 1 is there
// in round 2, with the copies of round 2 at /view. There is no network, and nothing
// of it reaches the agent or the user.
func TestASupervisorWithASandboxOfItsOwn(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir := t.TempDir()
	loopPlugins(t, dir, "greeter")
	e2etest.Write(t, dir, judgeBoxFiles(t))
	berthWith(t, dir, nil, "plan").want(t, 0)
	r := berthWith(t, dir, nil, "run", "--require", "passed = planned")
	attempts, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1"))
	if err != nil || len(attempts) != 1 || r.code != 0 {
		t.Fatalf("%d, attempts %q, %v\n%s\n%s", r.code, attempts, err, r.out, r.stderr)
	}
	result := e2etest.Result(t, attempts[0])
	created, judged := 0, 0
	for _, p := range result.Phases {
		switch p.Name {
		case record.PhaseCreate:
			created++
		case record.PhaseJudge:
			judged++
		default:
		}
	}
	if created != 2 || judged != 2 || result.Scores["final_score"] != 1 {
		t.Errorf("%d sandboxes were created, %d rounds were judged, scores %v; want 2, 2 and 1", created, judged, result.Scores)
	}
	public := e2etest.Read(t, attempts[0], record.TurnsFile) + e2etest.Read(t, attempts[0], record.StepsFile)
	private := ""
	for _, x := range e2etest.Lines[gateway.Exchange](t, attempts[0], record.ExchangesFile) {
		b, err := recording.Fetch(filepath.Join(attempts[0], record.ModelDir), x.Request)
		e2etest.Must(t, err)
		if x.Role == "judge" {
			private += string(b)
		} else {
			public += string(b)
		}
	}
	if leaked := in(public, []string{"MARK-", "(1,)"}); len(leaked) > 0 || !strings.Contains(public, "searched") {
		t.Errorf("the agent or the user learned %q, or did not look:\n%s", leaked, public)
	}
	if strings.Contains(private, "MARK-ENV") || !strings.Contains(private, "MARK-NOTE") {
		t.Errorf("the supervisor's model was told of a variable, or not of its own note:\n%s", private)
	}
}

// judgeBoxFiles are an experiment and a task in which an agent makes a database.
func judgeBoxFiles(t *testing.T) map[string]string {
	t.Helper()
	testlevel.Program(t, "python3", "python3") // which the agent and the verifier run
	const (
		rows   = `python3 -c "import sqlite3; print('rows', sqlite3.connect('/view/attempt/artifacts/app/data.db').execute('select count(*) from t').fetchone())"`
		insert = `python3 -c "import sqlite3; c = sqlite3.connect('/app/data.db'); c.execute('create table if not exists t (a)'); c.execute('insert into t values (1)'); c.commit()"`
		look   = `ls /view /tmp; grep -rhoa 'MA[R]K-[A-Z]*' /app /tmp /view 2> /dev/null; echo 'searched: I have finished the request'`
	)
	run := func(last, command string) map[string]any {
		return map[string]any{
			"when":  map[string]any{"turn": 0, "last": last},
			"tools": []any{map[string]any{"name": "run", "arguments": map[string]any{"command": command}}},
		}
	}
	judge := []any{
		run(`"messages_of_the_user_so_far":0,`, rows+`; echo MARK-NOTE > /tmp/state; ls attempt/artifacts/app/out; cat tests/references/eval_rule.md; env
python3 -c "import socket; socket.create_connection(('192.0.2.1', 80), 5)" 2>&1 | grep -c unreachable; ls /app`),
		reply(`(?s)Exit code 0.*rows \(1,\)\none\n.*RUBRIC.*\n1\n`, verdict("continue", 0.4, `{"rationale": "MARK-RATIONALE"}`)),
		run(`"messages_of_the_user_so_far":1,`, rows+`; cat /tmp/state; ls attempt/artifacts/app/out`),
		reply(`(?s)Exit code 0.*rows \(2,\)\nMARK-NOTE\ntwo\n$`, verdict("pass", 1, "")),
		map[string]any{"when": map[string]any{"system": "."}, "text": verdict("fail", 0, `{"rationale": ""}`)},
	}
	feedback, err := json.Marshal(map[string]any{
		"mode": "instruction", "tone": "neutral", "candidate_feedback": insert + `; rm -rf /app/out; mkdir /app/out; echo 2 > /app/out/two; ` + look, "public_feedback_points": []string{},
	})
	e2etest.Must(t, err)
	files := map[string]string{
		"berth.hcl": strings.Replace(loopExperiment, `verifier "supervisor" { model = model.judge }`, `verifier "supervisor" {
  model = model.judge
  config {
    tools         = "sandbox"
    handoff_score = false
  }
}`, 1),
		"tasks/db/instruction.md":                insert + `; mkdir -p /app/out; echo 1 > /app/out/one; ` + look + "\n",
		"tasks/db/environment/Dockerfile":        "FROM scratch\nWORKDIR /app\n",
		"tasks/db/tests/references/eval_rule.md": "RUBRIC: two rows.\n",
	}
	e := ending{name: "db", followUps: 1}
	files["tasks/db/task.toml"] = strings.Replace("artifacts = [\"/app/data.db\", \"/app/out\"]\n"+loopTask(&e), "[agent]", "[environment]\nworkdir = \"/app\"\n[verifier.env]\nTASK_KEY = \"MARK-ENV\"\n[agent]", 1)
	for name, replies := range map[string]any{"judge.yaml": judge, "user.yaml": []any{map[string]any{"text": string(feedback)}}} {
		b, err := json.Marshal(map[string]any{"replies": replies})
		e2etest.Must(t, err)
		files[name] = string(b) // JSON is YAML
	}
	return files
}
