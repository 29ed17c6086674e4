package audit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/audit"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
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
	identity := cell.Canonical(map[string]any{"agent": map[string]any{"plugin": "a", "config": map[string]string{"say": "a <b> & \u2028 ü \"c\""}}})
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
	note := verifier.Finding{Code: "system_changed", Severity: verifier.Note, Text: "a"}
	least, one, now := 1.0, 1.0, time.Now().UTC()
	v := verifier.Verdict{Verifier: "script", Stage: "main", Decision: verifier.Scored, Scores: map[string]verifier.Score{"reward": {Value: 1}}}
	got := record.Result{
		Version: 1, Run: r.Manifest.Header.Run, Trial: tr.ID, Task: "task", TaskDigest: "sha256:1", Cell: map[string]string{"agent": "a"}, Repetition: 1,
		Attempt: 1, Outcome: record.Passed, AgentEnd: record.Yielded, Integrity: record.Checked, Mode: "live",
		Success: &task.Success{Score: "reward", Reduce: task.ReduceMean, AtLeast: &least}, Scores: map[string]float64{"reward": 1}, Score: &one,
		Verdicts: []verifier.Verdict{v}, Start: now, End: now, Phases: []record.Phase{},
		Stages:   []record.StageResult{{Name: "main", Outcome: record.Passed, AgentEnd: record.Yielded, Rewards: map[string]float64{"reward": 1}}},
		Findings: []record.Finding{{By: "core", Finding: note}}, AgentTime: time.Second, Steps: 1,
		Usage: []record.Usage{{Role: "agent", Model: "m", Requests: int64(len(exchanges)), InputTokens: int64(10 * len(exchanges)), CostUSD: new(float64)}},
	}
	must(t, a.Append(record.TurnsFile, record.Turn{Time: now, Kind: record.TurnYield, Stage: "main", Turn: 1, End: record.Yielded, Took: time.Second}))
	must(t, a.Append(record.StepsFile, record.Step{Time: now, Stage: "main", Turn: 1, Role: "agent", Step: trajectory.Step{StepID: 1, Source: trajectory.Model}}))
	must(t, a.Append(record.EventsFile, record.Event{Time: now, Type: "finding", Finding: &record.Finding{By: "core", Finding: note}}))
	must(t, a.Append(record.VerdictsFile, record.Verdict{Time: now, Verdict: v}))
	must(t, os.MkdirAll(filepath.Join(a.Dir(), record.VerifierDir, "logs"), 0o755))
	must(t, a.WriteFile(record.VerifierDir+"/logs/reward.txt", []byte(reward)))
	must(t, os.MkdirAll(filepath.Join(a.Dir(), record.ModelDir), 0o755))
	for _, x := range exchanges {
		must(t, a.Append(record.ExchangesFile, json.RawMessage(x)))
	}
	_, _, err = recording.Store(filepath.Join(a.Dir(), record.ModelDir), []byte(reply), recording.NewRoom(1<<20))
	must(t, err)
	if change != nil {
		change(&got)
	}
	must(t, a.Publish(got))
	must(t, r.Close())
	return r.Dir
}

// The request of the run of forged, and the reply to it.
const (
	reply   = `{"usage":{"prompt_tokens":10,"completion_tokens":0}}`
	request = `{"role":"agent","model":"m","request":"sha256:1","dialect":"openai-chat","usage":{"input":10,"output":0},"cost_usd":0,` +
		`"price":{"input":0},"reply":"sha256:01da8892ed1cf41eb9c490a9a197fa3b866953a7df8cf2c576db4571418ef43c"}`
)

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
		"tokens":                  {func(r *record.Result) { r.Usage[0].InputTokens = 5 }, "1", `role \"agent\", model \"m\": it gives 10 input tokens, and the result has 5`},
		"cost":                    {func(r *record.Result) { r.Usage[0].CostUSD = &half }, "1", "it gives 0.000000 USD, and the result has 0.500000 USD"},
		"a result of another run": {func(r *record.Result) { r.Run = "other" }, "1", `its run is \"other\"`},
		"a failure with an error": {func(r *record.Result) { r.Outcome, r.Error = record.Failed, &record.Error{} }, "1", "its outcome is failed, and it has an error"},
		"a pass behind an error": {func(r *record.Result) {
			r.Stages[0].Error, r.Score, r.Scores = &record.Error{}, &half, map[string]float64{"reward": half}
		}, "1", "its verdicts give map[reward:1]"},
		"another task": {func(r *record.Result) { r.TaskDigest = "sha256:2" }, "1", "it is of the task with the digest sha256:2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := audit.Run(forged(t, tt.change, tt.reward, request), nil)
			must(t, err)
			text, err := json.Marshal(got.Checks)
			must(t, err)
			if (got.Problems == 0) != (tt.want == "") || !strings.Contains(string(text), tt.want) {
				t.Errorf("%d problems in\n%s\nwant %q", got.Problems, text, tt.want)
			}
		})
	}
}

// What honest attempts look like that ended before they were judged to the end, or
// that nobody ended.
func TestHonestRecordsMatch(t *testing.T) {
	t.Parallel()
	none := func(r *record.Result, o record.Outcome, by record.Boundary) {
		e := &record.Error{Boundary: by, Phase: record.PhaseUser, Message: "a <b> & c"}
		r.Outcome, r.Error, r.Integrity, r.Score, r.Scores = o, e, record.Unknown, nil, nil
		r.Stages[0] = record.StageResult{Name: "main", Outcome: o, AgentEnd: record.Yielded, Error: e}
	}
	for name, change := range map[string]func(*record.Result){
		"the user failed after a round":      func(r *record.Result) { none(r, record.UserError, record.ByUser) },
		"the second verifier failed":         func(r *record.Result) { none(r, record.VerifierError, record.ByVerifier) },
		"a model failed after a round":       func(r *record.Result) { none(r, record.ModelError, record.ByModel) },
		"the sandbox was lost after a round": func(r *record.Result) { none(r, record.AgentError, record.ByAgent) },
		"it was cancelled between verdicts of rounds": func(r *record.Result) {
			none(r, record.Cancelled, record.ByCore)
			r.Stages[0].Outcome, r.Stages[0].Error = record.Failed, nil
		},
		"its worker was lost": func(r *record.Result) {
			*r = record.Result{
				Version: 1, Run: r.Run, Trial: r.Trial, Task: r.Task, TaskDigest: r.TaskDigest, Cell: r.Cell, Repetition: 1, Attempt: 1, Outcome: record.Preempted,
				Integrity: record.Unknown, Steps: 7, Error: &record.Error{Boundary: record.ByCore}, Worker: &record.Worker{Pilot: "p", Lost: "worker"}, Phases: []record.Phase{},
			}
		},
	} {
		got, err := audit.Run(forged(t, change, "1"), nil)
		must(t, err)
		if text, wrong := json.Marshal(got.Checks); got.Problems != 0 || wrong != nil {
			t.Errorf("%s: %d problems in\n%s", name, got.Problems, text)
		}
	}
}

// Usage that was changed in the record of a request contradicts its reply, and a cost
// its price.
func TestForgedRequestsAreFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ was, is, want string }{
		"tokens":      {`"input":10`, `"input":9`, "its reply gives {Input:10 "},
		"cost":        {`"cost_usd":0`, `"cost_usd":0.5`, "its tokens cost 0 USD at its price, and the line has 0.500000 USD"},
		"price":       {`"price":{"input":0}`, `"price":{"input":2000}`, "its tokens cost 0.02 USD at its price, and the line has 0.000000 USD"},
		"reply":       {`"reply":"sha256:`, `"reply":"sha256:00`, "its reply cannot be read"},
		"role":        {`"role":"agent"`, `"role":"judge"`, `role \"agent\": it gives 0 requests, and the result has 1`},
		"who used it": {`"model":"m"`, `"model":"other"`, "which models a role used: its requests name others than the result"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := strings.Replace(request, tt.was, tt.is, 1)
			got, err := audit.Run(forged(t, nil, "1", x), nil)
			must(t, err)
			text, err := json.Marshal(got.Checks)
			must(t, err)
			if x == request || !strings.Contains(string(text), tt.want) {
				t.Errorf("no %q in\n%s", tt.want, text)
			}
		})
	}
}

// The digest of a task that is here is the one that attempts were of.
func TestATaskThatWasChangedIsFound(t *testing.T) {
	t.Parallel()
	dir := forged(t, nil, "1", request)
	for want, tasks := range map[string]audit.Tasks{
		"":                               {"d": {"task": "sha256:1"}},
		"the attempts were of sha256:1":  {"d": {"task": "sha256:2"}},
		"the task \"task\" is not there": {"d": {}},
	} {
		got, err := audit.Run(dir, tasks)
		must(t, err)
		p := got.Checks[len(got.Checks)-1].Problems
		if len(p) != min(len(want), 1) || len(p) == 1 && !strings.Contains(p[0].Text, want) {
			t.Errorf("%v: %+v, want %q", tasks, p, want)
		}
	}
	got, err := audit.Run(dir, audit.Tasks{"d": {"task": ""}}) // it starts from another run, which is not here
	must(t, err)
	if c := got.Checks[len(got.Checks)-1]; len(c.Problems) > 0 || !strings.Contains(fmt.Sprint(c), "depend on what is outside of its folder") {
		t.Errorf("%+v", c)
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
	got, err := audit.Run(dir, nil)
	must(t, err)
	p := got.Checks[1].Problems
	if len(p) != 2 || p[0].Line != 0 || p[1].Line != 3 || !strings.Contains(p[1].Text, "give the id") {
		t.Errorf("%+v", p)
	}
}

// A crash may leave a part of the last line of a journal. Anything else that is cut off
// was changed by hand.
func TestATornLastLineIsOfACrash(t *testing.T) {
	t.Parallel()
	half := func(line string) string { return line[:len(line)/2] }
	for _, tt := range []struct {
		name   string
		change func(lines []string) []string // with their ends; the last one is that the writer ended
		crash  bool
	}{
		{"half of the last line", func(l []string) []string { return append(l[:len(l)-1], half(l[len(l)-1])) }, true},
		{"the last line without its end", func(l []string) []string { return append(l[:len(l)-1], strings.TrimSuffix(l[len(l)-1], "\n")) }, true},
		{"zeros in place of the last line", func(l []string) []string { return append(l[:len(l)-1], "\x00\x00\x00") }, true},
		{"a part after the end of the writer", func(l []string) []string { return append(l, half(l[1])) }, false},
		{"half of a line before others", func(l []string) []string { l[1] = half(l[1]) + "\n"; return l }, false},
		{"half of the last line with a line end", func(l []string) []string { return append(l[:len(l)-1], half(l[len(l)-1])+"\n") }, false},
		{"a last line that was changed", func(l []string) []string {
			return append(l[:len(l)-1], strings.Replace(strings.TrimSuffix(l[len(l)-1], "\n"), `"seq":`, `"seq":1`, 1))
		}, false},
	} {
		dir := forged(t, nil, "1", request)
		files, err := filepath.Glob(filepath.Join(dir, store.JournalDir, "*.jsonl"))
		must(t, err)
		b, err := os.ReadFile(files[0])
		must(t, err)
		must(t, os.WriteFile(files[0], []byte(strings.Join(tt.change(slices.Collect(strings.Lines(string(b)))), "")), 0o600))
		got, err := audit.Run(dir, nil)
		must(t, err)
		c := got.Checks[0]
		if crash := slices.ContainsFunc(c.Unchecked, func(s string) bool { return strings.Contains(s, "a crash of its writer") }); crash != tt.crash || (len(c.Problems) == 0) != tt.crash {
			t.Errorf("%s: problems %+v, notes %q", tt.name, c.Problems, c.Unchecked)
		}
	}
}

func TestAFileThatWasAddedIsFound(t *testing.T) {
	t.Parallel()
	dir := forged(t, nil, "1", request)
	all, err := filepath.Glob(filepath.Join(dir, "trials", "*", "attempt-1"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(all[0], "more"), nil, 0o600))
	got, err := audit.Run(dir, nil)
	must(t, err)
	if p := got.Checks[2].Problems; len(p) != 1 || !strings.HasSuffix(p[0].File, "/more") || !strings.Contains(p[0].Text, "added") {
		t.Errorf("%+v", p)
	}
}
