package report_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/runtest"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

func TestMain(m *testing.M) { runtest.Main(m, nil) }

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// runOf is a run of two trials of one task and one of another; the first has
// an attempt that was killed and one that passed.
func runOf(t testing.TB) string {
	t.Helper()
	m := &store.Manifest{
		Header: store.Header{Experiment: "exp", Created: at},
		Cells:  []store.Cell{{Key: "agent=a", Slug: "a", Agent: "a", Choices: map[string]string{"agent": "a"}}},
	}
	for i, task := range []string{"org/one", "org/one", "two"} {
		id := strings.Repeat(string(rune('a'+i)), 64)
		m.Trials = append(m.Trials, store.Trial{ID: id, Dir: store.TrialDir(task, "a", i+1, id), Task: task, Repetition: i + 1})
	}
	r, err := store.Create(t.TempDir(), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	killed, err := r.Begin(m.Trials[0].ID)
	if err == nil {
		err = errors.Join(
			killed.Append(record.EventsFile, record.Event{Time: at, Type: record.EventPhaseStart, Phase: record.PhaseCreate, Who: record.ByEnvironment}),
			killed.Append(record.EventsFile, record.Event{Time: at.Add(time.Second), Type: record.EventPhaseEnd, Phase: record.PhaseCreate}),
			killed.Append(record.EventsFile, record.Event{Time: at.Add(time.Second), Type: record.EventPhaseStart, Phase: record.PhaseTurn, Who: record.ByAgent}),
			os.Mkdir(filepath.Join(killed.Dir(), record.ModelDir), 0o755),
			killed.Append(record.ExchangesFile, map[string]any{"usage": map[string]int{"input": 7900, "output": 20}, "cost_usd": 0.5}),
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.Begin(m.Trials[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	score := 1.0
	err = errors.Join(
		a.Append(record.StepsFile, record.Step{Time: at, Stage: "main", Turn: 1, Role: "agent", Step: trajectory.Step{
			StepID: 1, Source: trajectory.Model, Message: trajectory.Text("\x1b[2Jhello"),
		}}),
		a.Append(record.LogFile, map[string]any{"time": at, "from": "a", "text": "first\nsecond"}),
		a.Publish(record.Result{
			Version: 1, Trial: m.Trials[0].ID, Outcome: record.Passed, AgentEnd: record.Yielded, Integrity: record.Exposed, Reasons: []string{"a server was left"},
			Mode: "live", Score: &score, Scores: map[string]float64{"reward": 1}, Labels: map[string]string{"status": "all\x1b[2J well"}, Start: at, End: at.Add(2 * time.Second),
			Phases: []record.Phase{{Name: record.PhaseTurn, Who: record.ByAgent, Start: at, End: at.Add(1500 * time.Microsecond)}},
			Verdicts: []verifier.Verdict{{Verifier: "script", Decision: verifier.Scored, Rationale: "fine", Checkpoints: []verifier.Checkpoint{
				{Name: "test_a", Passed: true}, {Name: "test_b\x1b[2J", Note: "assert 1 == 2"}, {Name: "test_c", Skipped: true},
			}}},
			Stages: []record.StageResult{{Name: "main", AgentEnd: record.Crashed, LastTurn: &record.LastTurn{
				ExitCode: 7, Reason: "oh no", Message: "let me see", Exchange: &record.Exchange{Model: "m1", Status: 400, Upstream: "no such field"},
			}}},
		}),
		r.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	return r.Dir
}

func TestTrialsAreFoundByWhatTheyAreCalled(t *testing.T) {
	t.Parallel()
	_, x, err := store.Read(runOf(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		strings.Repeat("a", 64): "a", "aaaa": "a", "bb": "b", "two": "c", "two--a--3": "c", "org_one--a--2": "b",
		"org/one": "matches 2 trials", "one": "matches 2 trials", "zzz": "no trial", "org_one": "matches 2 trials",
	} {
		tr, err := report.FindTrial(x, name)
		switch {
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want %q", name, err, want)
		case err == nil && tr.ID[:1] != want:
			t.Errorf("%q: trial %s, want %q", name, tr.ID[:4], want)
		}
	}
}

func TestEveryAttemptHasItsPhases(t *testing.T) {
	t.Parallel()
	dir := runOf(t)
	m, x, err := store.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	res := report.Run(dir, m, x, x.Trials)
	attempts := res.Trials[0].Attempts
	if len(attempts) != 2 || attempts[0].State != output.Abandoned || attempts[1].State != output.Published || res.Trials[0].Accepted != 2 {
		t.Fatalf("attempts: %+v", attempts)
	}
	if spend := attempts[0].Spend; spend.Tokens != 7920 || res.Summary.Tokens != 7920 || *res.Summary.CostUSD != 0.5 {
		t.Errorf("a killed attempt used 7920 tokens: it says %+v, the summary %d", spend, res.Summary.Tokens)
	}
	var text bytes.Buffer
	report.TrialHead(&terminal.Printer{Out: &text}, m, x.Trials[0], nil, 2)
	if !strings.Contains(text.String(), "killed before it had a result  1 request, 7920 tokens, 0.5000 USD") {
		t.Errorf("its spend is not shown: %s", text.String())
	}
	killed := attempts[0].Phases
	if len(killed) != 2 || killed[0].End.Sub(killed[0].Start) != time.Second || killed[0].Who != record.ByEnvironment ||
		!killed[1].End.Equal(at.Add(time.Second)) || killed[1].Error == "" {
		t.Errorf("phases of the killed one: %+v", killed)
	}
	if len(attempts[1].Phases) != 1 || attempts[1].Phases[0].Who != record.ByAgent {
		t.Errorf("phases: %+v", attempts[1].Phases)
	}
	if res.Summary.Planned != 3 || len(res.Trials) != 3 || res.Summary.Lost != 1 {
		t.Errorf("summary: %+v", res.Summary)
	}
}

func TestAnAttemptAsText(t *testing.T) {
	t.Parallel()
	dir := runOf(t)
	_, x, err := store.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	full, err := report.Attempt(report.Folder(dir, x.Trials[0], 2), output.Published)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	report.AttemptText(&terminal.Printer{Out: &b}, full, false)
	for _, want := range []string{
		"outcome    passed", "label      status = all�[2J well", "integrity  exposed: a server was left", "score      reward = 1", "verdict    script: scored: fine",
		"           1 passed, 1 failed, 1 skipped", "           failed: test_b\ufffd[2J: assert 1 == 2", "           skipped: test_c",
		"reason     exit code 7: oh no", "last words let me see", "last call  m1: status 400: no such field",
		"turn", "1.5 ms", "1 agent  �[2Jhello", "a: first", "    second", record.ResultFile,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("what the agent said steers the terminal")
	}
}

// A result that was damaged after it was published hides nothing else of the
// attempt, and is not taken for one that was never there.
func TestADamagedResultIsSaid(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(file string) error{
		"cut":  func(file string) error { return os.Truncate(file, 10) },
		"gone": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runOf(t)
			_, x, err := store.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			folder := report.Folder(dir, x.Trials[0], 2)
			if err = harm(filepath.Join(folder, record.ResultFile)); err != nil {
				t.Fatal(err)
			}
			full, err := report.Attempt(folder, report.StateOf(x, x.Trials[0], 2))
			if err != nil || full.Damage == "" || full.Result != nil || len(full.Files) == 0 {
				t.Fatalf("got %+v, %v", full, err)
			}
			var b bytes.Buffer
			report.AttemptText(&terminal.Printer{Out: &b}, full, true)
			if text := b.String(); !strings.Contains(text, "result.json is damaged") || strings.Contains(text, "not published") {
				t.Errorf("text:\n%s", text)
			}
			if err = os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			if _, err = report.Attempt(folder, output.Published); err == nil || !strings.Contains(err.Error(), "the folder of the attempt was removed") {
				t.Errorf("without its folder: %v", err)
			}
		})
	}
}

// An attempt may be a stranger's: what is not a regular file of it is named, not
// opened, and the rest is shown.
func TestAnAttemptOfStrangeFilesIsShownAsFarAsItIsPlain(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"a pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link": func(path string) error { return os.Symlink("/dev/zero", path) },
		"a line without an end": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		for _, file := range []string{record.EventsFile, record.TurnsFile, record.StepsFile, record.VerdictsFile, record.LogFile} {
			if name == "a line without an end" && file != record.StepsFile {
				continue // it takes a second to read as much of it as is read
			}
			dir := runOf(t)
			_, x, err := store.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			folder := report.Folder(dir, x.Trials[0], x.Trials[0].Accepted().Number)
			_ = os.Remove(filepath.Join(folder, file))
			if err = errors.Join(put(filepath.Join(folder, file)), os.Remove(filepath.Join(folder, record.ResultFile))); err != nil {
				t.Fatal(err)
			}
			full, err := report.Attempt(folder, output.Published)
			if err != nil || len(full.Cut) != 1 || !strings.Contains(full.Cut[0], file) {
				t.Errorf("%s is %s: %+v, %v", file, name, full, err)
				continue
			}
			var b bytes.Buffer
			report.AttemptText(&terminal.Printer{Out: &b}, full, true)
			if !strings.Contains(b.String(), "note: ") {
				t.Errorf("%s is %s: nothing is said of it:\n%s", file, name, b.String())
			}
		}
	}
}

func TestRunsAreListedOldestFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, name := range []string{"b", "a"} {
		file := filepath.Join(dir, name, store.ManifestFile)
		err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600), os.Chtimes(file, at, at.Add(time.Duration(i)*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "no-run"), 0o755); err != nil {
		t.Fatal(err)
	}
	runs, err := report.Runs(dir)
	if err != nil || len(runs) != 2 || filepath.Base(runs[0]) != "b" || filepath.Base(runs[1]) != "a" {
		t.Errorf("runs: %q, %v", runs, err)
	}
	if runs, err = report.Runs(filepath.Join(dir, "none")); err != nil || runs != nil {
		t.Errorf("runs of no folder: %q, %v", runs, err)
	}
}

// What is left out of a denominator must not make the headline.
func TestOfPlannedIsTheHeadlineAndTasksNameTheirCells(t *testing.T) {
	t.Parallel()
	half, all := 0.5, 1.0
	row := func(name, cell string) summary.Row {
		return summary.Row{Name: name, Cell: cell, Agent: "a", Planned: 2, Measured: 1, Passed: 1, PassedChecked: 1, OfPlanned: &half, OfMeasured: &all}
	}
	var b bytes.Buffer
	report.Summary(&terminal.Printer{Out: &b}, &summary.Summary{
		Cells: []summary.Row{row("agent=a", ""), row("agent=b", "")},
		Tasks: []summary.Row{row("t1", "agent=a"), row("t1", "agent=b"), row("t2", "agent=a"), row("t2", "agent=b")},
	})
	for _, line := range []string{"cell     passed   of planned   of measured  not measured", "agent=a       1  50.0% (1/2)  100.0% (1/1)             1", "t1    agent=b       1  50.0% (1/2)"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in:\n%s", line, b.String())
		}
	}
}

// The manifest of a stranger may name trials by ids of any length.
func TestTrialsWithShortIDsAreFound(t *testing.T) {
	t.Parallel()
	x := &store.Index{}
	for _, id := range []string{"ab", "ac"} {
		x.Trials = append(x.Trials, &store.TrialState{Trial: &store.Trial{ID: id, Dir: id}})
	}
	if _, err := report.FindTrial(x, "a"); err == nil || !strings.Contains(err.Error(), `"a" matches 2 trials`) {
		t.Errorf("%v, want both trials named", err)
	}
}

// With --all nothing is cut; without it the end stays, which has the cause.
func TestTextsKeepTheirEnd(t *testing.T) {
	t.Parallel()
	said := strings.Repeat("word ", 100) + "the cause"
	full := &output.ShowFull{Steps: []record.Step{{Step: trajectory.Step{StepID: 1, Source: trajectory.Model, Message: trajectory.Text(said)}}}}
	for _, all := range []bool{false, true} {
		var b bytes.Buffer
		report.AttemptText(&terminal.Printer{Out: &b}, full, all)
		if strings.Contains(b.String(), said) != all || !strings.Contains(b.String(), "the cause\n") {
			t.Errorf("all %t:\n%s", all, &b)
		}
	}
}
