package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// hostile is a text that would do something in a page that does not escape it.
const hostile = `</script><script>document.title="taken"</script><img src=x onerror="document.title='taken'">` + "\x1b[31m"

// makeRun makes a run with results that look like real ones: an axis of durations,
// costs, categories, errors and texts of strangers.
func makeRun(t testing.TB, tasks, cells, repetitions int) numbers.Run {
	t.Helper()
	m := &store.Manifest{Header: store.Header{Experiment: "example " + hostile, Berth: "test", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
	for c := range cells {
		limit := fmt.Sprintf("%dm", 5*(1+c%4))
		agent := fmt.Sprintf("agent-%d", c/4)
		m.Cells = append(m.Cells, store.Cell{
			Index: c, Key: "agent=" + agent + " limit=" + limit, Slug: agent + "-" + limit, Agent: agent, Environment: "local",
			Choices: map[string]string{"agent": agent, "limit": limit},
		})
	}
	for n := range tasks {
		name := fmt.Sprintf("group-%d/task-%03d", n%5, n)
		if n == 1 {
			name = hostile
		}
		for c := range cells {
			for r := range repetitions {
				id := fmt.Sprintf("%016x%048d", (n*cells+c)*repetitions+r+1, 0)
				m.Trials = append(m.Trials, store.Trial{
					ID: id, Dir: store.TrialDir(name, m.Cells[c].Slug, r+1, id), Task: name, TaskDigest: fmt.Sprintf("sha256:%064x", n), Dataset: "bench",
					Cell: c, Repetition: r + 1, Labels: task.Labels{Category: fmt.Sprintf("group-%d", n%5), Difficulty: []string{"easy", "hard"}[n%2]},
				})
			}
		}
	}
	m.Header.Run = "0123456789abcdef"
	run := numbers.Run{Dir: filepath.Join(t.TempDir(), "example-20260102T030405Z"), Manifest: m, Index: &store.Index{}}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range m.Trials {
		state := &store.TrialState{Trial: &m.Trials[i]}
		if run.Index.Trials = append(run.Index.Trials, state); i%97 == 96 {
			continue // was not run
		}
		r := result(m, i, tasks, cells, random)
		state.Attempts = []store.AttemptState{{Number: 1, Result: store.BriefOf(&r)}}
		if len(r.Findings) > 0 { // the page reads no other result.json for anything else
			b, err := json.Marshal(r)
			dir := report.Folder(run.Dir, state, 1)
			if err = errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, record.ResultFile), b, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return run
}

func result(m *store.Manifest, i, tasks, cells int, random *rand.Rand) record.Result {
	tr := &m.Trials[i]
	cost := 0.02 + 0.05*random.Float64()*float64(1+tr.Cell%4)
	r := record.Result{
		Version: 1, Run: m.Header.Run, Trial: tr.ID, Task: tr.Task, TaskDigest: tr.TaskDigest, Repetition: tr.Repetition, Attempt: 1,
		Outcome: record.Failed, AgentEnd: record.Yielded, Integrity: record.Checked, Mode: "live", Phases: []record.Phase{},
		Start: m.Header.Created, End: m.Header.Created.Add(time.Minute), AgentTime: time.Duration((5 + 300*random.ExpFloat64()) * float64(time.Second)),
		Usage: []record.Usage{{Role: "agent", Model: "m", Requests: 9, InputTokens: 9000, OutputTokens: 700, CostUSD: &cost}},
	}
	score := 0.0
	if able := 0.25 + 0.5*float64(tr.Cell)/float64(cells); random.Float64() < able*1.6*(1-float64(i/cells)/float64(2*tasks)) {
		score, r.Outcome = 1, record.Passed
	}
	r.Score, r.Scores = &score, map[string]float64{"reward": score}
	switch random.IntN(40) {
	case 0:
		r.Outcome, r.AgentEnd, r.Score, r.Scores = record.EnvironmentError, "", nil, nil
		r.Error = &record.Error{Boundary: record.ByEnvironment, Phase: record.PhaseCreate, Message: hostile}
	case 1, 2:
		r.AgentEnd = record.Timeout
	case 3:
		r.Integrity, r.Reasons = record.Exposed, []string{"a process was left: " + hostile}
		r.Findings = []record.Finding{{Finding: verifier.Finding{Code: "processes_left", Severity: "warning", Text: hostile}, By: "core"}}
	}
	return r
}

// made returns the report of a run.
func made(t testing.TB, runs ...numbers.Run) []byte {
	t.Helper()
	b, err := Make(runs, &Options{Berth: "test", Rules: numbers.Rules{MaxInfrastructure: 0.02}, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The page holds nothing of a run as markup, asks for nothing, and is the same each
// time.
func TestPageIsSafe(t *testing.T) {
	t.Parallel()
	r := makeRun(t, 12, 8, 2)
	b := made(t, r)
	if !bytes.Equal(b, made(t, r)) {
		t.Error("two reports of the same run differ")
	}
	text := string(b)
	text, _, _ = strings.Cut(text, "<script type=") // what follows is packed
	for _, bad := range []string{`<img`, `document.title="taken"</script>`, "\x1b", "http-equiv=\"refresh\"", "<iframe", "<object", "src=\"", "NaN"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"default-src &#39;none&#39;", "script-src &#39;sha256-", "&lt;/script&gt;&lt;script&gt;", "Leaderboard", "p (Holm)", "cells (* in the leaderboard) are refused without --force", "Copyright"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(string(b), "<script"); n != 5 { // three libraries, the data, and the program
		t.Errorf("%d scripts", n)
	}
}

// A cell without results, a run of one cell, and a run of which nothing ran.
func TestPageOfLittle(t *testing.T) {
	t.Parallel()
	m := &store.Manifest{
		Header: store.Header{Experiment: "empty", Created: time.Now()}, Cells: []store.Cell{{Key: "agent=a", Slug: "a", Agent: "a"}},
		Trials: []store.Trial{{ID: strings.Repeat("a", 64), Dir: "x", Task: "t", Dataset: "d", Repetition: 1}},
	}
	s, err := store.Create(t.TempDir(), m, nil)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	runs, err := numbers.Read(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(made(t, runs...)); !strings.Contains(text, "No two cells have results") || !strings.Contains(text, "The numbers of 1 of 1 cell (* in the leaderboard) are refused") {
		t.Error("the page does not say that nothing ran")
	}
	if _, err = Make(nil, &Options{}); err == nil {
		t.Error("a report of nothing")
	}
}

// A report follows the rules of the experiment, as tables do.
func TestPageFollowsTheRules(t *testing.T) {
	t.Parallel()
	r := makeRun(t, 12, 4, 2) // all trials were run
	failed := 0
	for _, tr := range r.Index.Trials {
		if !tr.Measured() {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("no trial failed for a reason that is not the agent's")
	}
	o := Options{Rules: numbers.Rules{MaxInfrastructure: 0.02}}
	if _, err := Make([]numbers.Run{r}, &o); !errors.As(err, new(numbers.Refusal)) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("more trials failed than the rules allow: %v", err)
	}
	o.Rules.MaxInfrastructure = 0.5
	b, err := Make([]numbers.Run{r}, &o)
	if err != nil || strings.Contains(string(b), "in the leaderboard) are refused") || !strings.Contains(string(b), "if more than 50.0 % of its planned trials") {
		t.Errorf("as many as the rules allow: %v", err)
	}
	o.Rules.RefuseExposed = true
	if _, err = Make([]numbers.Run{r}, &o); err == nil || !strings.Contains(err.Error(), "results are exposed") {
		t.Errorf("exposed results: %v", err)
	}
	o.Rules.RefuseExposed = false
	o.Select = "score > 0"
	m, err := New([]numbers.Run{r}, &o)
	if err != nil || len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "of 96 trials that --select chooses") || m.Cells[0].rate() != 1 || m.Cells[0].Planned >= 24 {
		t.Errorf("a choice: %v, %+v", err, m)
	}
	o.Select = "false"
	if _, err = Make([]numbers.Run{r}, &o); err == nil || !strings.Contains(err.Error(), "--select chooses no trial") {
		t.Errorf("a choice of nothing: %v", err)
	}
}

// Means of a score such as a speedup are not percentages, in tables and charts.
func TestPageOfScoresThatAreNoShares(t *testing.T) {
	t.Parallel()
	r := makeRun(t, 4, 2, 1)
	for _, tr := range r.Index.Trials {
		b := tr.Accepted().Result
		b.Outcome, b.Score = record.Scored, new(2.5)
	}
	text := string(made(t, r))
	if !strings.Contains(text, "The scores have values below 0 or above 1") || strings.Count(text, `<td class="n">2.5</td>`) < 2 || strings.Contains(text, "250.0") {
		t.Errorf("the page says otherwise: %.3000s", text[strings.Index(text, "<body>"):])
	}
	if m, err := New([]numbers.Run{r}, &Options{Force: true, Rules: numbers.Rules{MaxInfrastructure: 1}}); err != nil || !m.payload().Raw {
		t.Errorf("the charts have percent: %v", err)
	}
}

// 10,000 trials in 40 cells fit into 2 MiB.
func TestPageOfTenThousandTrials(t *testing.T) {
	t.Parallel()
	r := makeRun(t, 250, 40, 1)
	began := time.Now()
	b := made(t, r)
	t.Logf("%d KiB in %.1f s", len(b)>>10, time.Since(began).Seconds())
	if len(b) > MaxBytes || strings.Contains(string(b), "the attempts are not listed") {
		t.Errorf("%d bytes, or without attempts", len(b))
	}
	looked(t, b, &sight{name: "large", width: 1280, tasks: 250})
}

// The page of a small run, as people see it.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	b := made(t, makeRun(t, 24, 8, 2))
	for _, s := range []sight{
		{name: "light", width: 1280, tasks: 24},
		{name: "dark-phone", width: 390, dark: true, tasks: 24},
	} {
		looked(t, b, &s)
	}
}
