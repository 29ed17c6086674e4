package audit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/audit"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// forged makes a run of one attempt whose files have the right checksums, because
// whoever changed them wrote them that way.
func forged(t testing.TB, change func(*record.Result), reward string, exchanges ...string) string {
	t.Helper()
	identity := json.RawMessage(`{"agent":{"plugin":"a"}}`)
	tr := store.Trial{ID: plan.TrialID("task", "sha256:1", identity, 1), Task: "task", TaskDigest: "sha256:1", Dataset: "d", Repetition: 1}
	tr.Dir = store.TrialDir("task", "a", 1, tr.ID)
	r, err := store.Create(t.TempDir(), &store.Manifest{
		Header: store.Header{Experiment: "exp", Berth: "test", Dir: "/exp"},
		Cells:  []store.Cell{{Key: "agent=a", Slug: "a", Choices: map[string]string{"agent": "a"}, Agent: "a", Environment: "e", Identity: map[string]json.RawMessage{"d": identity}}},
		Trials: []store.Trial{tr},
	}, []store.File{{Name: "exp.hcl", Bytes: []byte("experiment {}")}})
	must(t, err)
	a, err := r.Begin(tr.ID)
	must(t, err)
	least, one, now := 1.0, 1.0, time.Now().UTC()
	v := verifier.Verdict{Verifier: "script", Stage: "main", Decision: verifier.Scored, Scores: map[string]verifier.Score{"reward": {Value: 1}}}
	got := record.Result{
		Version: 1, Run: r.Manifest.Header.Run, Trial: tr.ID, Task: "task", TaskDigest: "sha256:1", Cell: map[string]string{"agent": "a"}, Repetition: 1,
		Attempt: 1, Outcome: record.Passed, AgentEnd: record.Yielded, Integrity: record.Checked, Mode: "live",
		Success: &task.Success{Score: "reward", Reduce: task.ReduceMean, AtLeast: &least}, Scores: map[string]float64{"reward": 1}, Score: &one,
		Verdicts: []verifier.Verdict{v}, Start: now, End: now, Phases: []record.Phase{},
		Stages: []record.StageResult{{Name: "main", Outcome: record.Passed, AgentEnd: record.Yielded, Rewards: map[string]float64{"reward": 1}}},
		Usage:  []record.Usage{{Role: "agent", Model: "m", Requests: int64(len(exchanges)), InputTokens: int64(10 * len(exchanges)), CostUSD: new(float64)}},
	}
	must(t, a.Append(record.VerdictsFile, record.Verdict{Time: now, Verdict: v}))
	must(t, os.MkdirAll(filepath.Join(a.Dir(), record.VerifierDir, "logs"), 0o755))
	must(t, a.WriteFile(record.VerifierDir+"/logs/reward.txt", []byte(reward)))
	must(t, os.MkdirAll(filepath.Join(a.Dir(), record.ModelDir), 0o755))
	for _, x := range exchanges {
		must(t, a.Append(record.ExchangesFile, json.RawMessage(x)))
	}
	if change != nil {
		change(&got)
	}
	must(t, a.Publish(got))
	must(t, r.Close())
	return r.Dir
}

const request = `{"request":"sha256:1","usage":{"input":10,"output":0},"cost_usd":0}`

// Numbers that were changed together with all checksums still contradict the raw
// records.
func TestForgedNumbersAreFound(t *testing.T) {
	t.Parallel()
	half := 0.5
	for name, tt := range map[string]struct {
		change func(*record.Result)
		reward string
		want   string // a substring; empty: no problem
	}{
		"nothing": {nil, "1\n", ""},
		"the score": {func(r *record.Result) {
			r.Score, r.Scores = &half, map[string]float64{"reward": half}
		}, "1", "its verdicts give map[reward:1]"},
		"the outcome":             {func(r *record.Result) { r.Outcome = record.Failed }, "1", "its outcome is failed, and its verdicts give passed"},
		"the verdict":             {func(r *record.Result) { r.Verdicts[0].Scores["reward"] = verifier.Score{Value: 2} }, "1", "which is in none of its verdicts here"},
		"the reward file":         {nil, "0", "it says reward = 0, and the result has 1"},
		"the integrity":           {func(r *record.Result) { r.Integrity = record.Exposed }, "1", "its integrity is exposed, and its findings give checked"},
		"tokens":                  {func(r *record.Result) { r.Usage[0].InputTokens = 5 }, "1", "it gives 1 requests and 10 tokens, and the result has 1 and 5"},
		"cost":                    {func(r *record.Result) { r.Usage[0].CostUSD = &half }, "1", "it gives 0.000000 USD, and the result has 0.500000 USD"},
		"a result of another run": {func(r *record.Result) { r.Run = "other" }, "1", `its run is \"other\"`},
		"another task":            {func(r *record.Result) { r.TaskDigest = "sha256:2" }, "1", "it is of the task with the digest sha256:2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := audit.Run(forged(t, tt.change, tt.reward, request))
			must(t, err)
			text, err := json.Marshal(got.Checks)
			must(t, err)
			if (got.Problems == 0) != (tt.want == "") || !strings.Contains(string(text), tt.want) {
				t.Errorf("%d problems in\n%s\nwant %q", got.Problems, text, tt.want)
			}
		})
	}
}

// The id of a trial depends on everything that decides its result, so that a plan
// that was changed afterwards is found.
func TestAPlanThatWasChangedIsFound(t *testing.T) {
	t.Parallel()
	dir := forged(t, nil, "1", request)
	file := filepath.Join(dir, store.ManifestFile)
	b, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(strings.Replace(string(b), `"plugin":"a"`, `"plugin":"b"`, 1)), 0o600))
	got, err := audit.Run(dir)
	must(t, err)
	p := got.Checks[1].Problems
	if len(p) != 2 || p[0].Line != 0 || p[1].Line != 3 || !strings.Contains(p[1].Text, "give the id") {
		t.Errorf("%+v", p)
	}
}

func TestAFileThatWasAddedIsFound(t *testing.T) {
	t.Parallel()
	dir := forged(t, nil, "1", request)
	all, err := filepath.Glob(filepath.Join(dir, "trials", "*", "attempt-1"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(all[0], "more"), nil, 0o600))
	got, err := audit.Run(dir)
	must(t, err)
	if p := got.Checks[2].Problems; len(p) != 1 || !strings.HasSuffix(p[0].File, "/more") || !strings.Contains(p[0].Text, "added") {
		t.Errorf("%+v", p)
	}
}
