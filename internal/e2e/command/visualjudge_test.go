package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
)

// An agent draws a workflow on a page: the comparator says 1, and the judge, whose
// models reply from files, says 4. The stored attempt is judged again with the same
// result.
func TestTheVisualJudge(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	testlevel.Program(t, "chromium", "chromium")
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "example"), os.DirFS(filepath.Join(tree.Root, "examples", "visual-judge"))))
	task := filepath.Join(dir, "example", "tasks", "greet", "task.toml")
	marked := strings.NewReplacer("An email follows", "MARK-condition: an email follows", "Two boxes,", "MARK-truth: two boxes,").Replace(e2etest.Read(t, task))
	e2etest.Write(t, filepath.Dir(task), map[string]string{"task.toml": marked})
	if r := berthWith(t, dir, nil, "run", "example"); r.code != 0 {
		t.Fatalf("%s\n%s", r.out, r.stderr)
	}
	trials := filepath.Join(dir, "runs", "*", "trials", "*")
	first := attemptOf(t, trials, 1)
	judgedAs(t, first, 4)
	for _, of := range []string{"verifier/visual-judge/pairs.jsonl", "captures/export/value.json", record.SurfaceFile} {
		if e2etest.Read(t, first, filepath.FromSlash(of)) == "" {
			t.Errorf("%s is empty", of)
		}
	}
	noMarks(t, first)

	if r := berthWith(t, dir, nil, "regrade", "last"); r.code != 0 {
		t.Fatalf("regrade: %s\n%s", r.out, r.stderr)
	}
	again := attemptOf(t, trials, 2)
	judgedAs(t, again, 4)
	if one, two := e2etest.Read(t, first, "verifier", "visual-judge", "pairs.jsonl"), e2etest.Read(t, again, "verifier", "visual-judge", "pairs.jsonl"); one != two {
		t.Errorf("judged again, the pairs are\n%s\nand were\n%s", two, one)
	}

}

func attemptOf(t *testing.T, trials string, number int) string {
	t.Helper()
	all := e2etest.Found(t, 1, trials, "attempt-"+string(rune('0'+number)))
	return all[0]
}

func resultOf(t *testing.T, attempt string) (r record.Result) {
	t.Helper()
	e2etest.Must(t, json.Unmarshal([]byte(e2etest.Read(t, attempt, record.ResultFile)), &r))
	return r
}

func judgedAs(t *testing.T, attempt string, judge float64) {
	t.Helper()
	if r := resultOf(t, attempt); r.Outcome != record.Passed || r.Scores["reward"] != 1 || r.Scores["judge"] != judge || len(r.Verdicts) != 2 {
		t.Errorf("%s, %v, %s: want a pass, reward 1 and judge %g", r.Outcome, r.Scores, pretty(r.Error), judge)
	}
}

// noMarks looks at what the models were asked: the agent's sees neither the success
// condition nor how a good result looks, and the judge's see them.
func noMarks(t *testing.T, attempt string) {
	t.Helper()
	seen := map[string]string{}
	for line := range strings.Lines(e2etest.Read(t, attempt, record.ExchangesFile)) {
		var x struct {
			Role    string `json:"role"`
			Request string `json:"request"`
		}
		e2etest.Must(t, json.Unmarshal([]byte(line), &x))
		body, err := recording.Fetch(filepath.Join(attempt, record.ModelDir), x.Request)
		e2etest.Must(t, err)
		seen[x.Role] += string(body)
	}
	for _, mark := range []string{"MARK-condition", "MARK-truth"} {
		if strings.Contains(seen[string(agent.RoleAgent)], mark) || !strings.Contains(seen["judge"], mark) {
			t.Errorf("%s: in a request of the agent %v, of the judge %v", mark, strings.Contains(seen[string(agent.RoleAgent)], mark), strings.Contains(seen["judge"], mark))
		}
	}
	if len(seen[string(agent.RoleAgent)]) == 0 {
		t.Error("the agent asked nothing")
	}
}
