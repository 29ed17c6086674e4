package export

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/plugins/verifier"
)

// testRun makes a run with a retried trial, an abandoned attempt, a trial without
// an attempt, and texts that somebody else chose.
func testRun(t testing.TB) *Run {
	t.Helper()
	m := &store.Manifest{
		Header: store.Header{Experiment: "x", Berth: "test", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		Cells: []store.Cell{
			{Index: 0, Key: "agent=a", Slug: "a", Agent: "a", Environment: "local", Choices: map[string]string{"agent": "a", "effort": "high"}},
			{Index: 1, Key: "agent=b", Slug: "b", Agent: "b", Environment: "local", Choices: map[string]string{"agent": "b"}},
		},
	}
	for i, task := range []string{"retried", "=cmd|' /C calc'!A0", "killed", "never"} {
		id := strings.Repeat(strconv.Itoa(i), 64)
		m.Trials = append(m.Trials, store.Trial{ID: id, Dir: store.TrialDir(task, "a", 1, id), Task: task, TaskDigest: "sha256:" + id, Dataset: "d", Cell: i % 2, Repetition: 1})
	}
	s, err := store.Create(t.TempDir(), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 2, 3, 4, 6, 123456789, time.UTC)
	cost, score := 0.25, 0.5
	publish := func(trial int, change func(*record.Result)) {
		a, beginErr := s.Begin(m.Trials[trial].ID)
		if beginErr != nil {
			t.Fatal(beginErr)
		}
		r := record.Result{
			Version: 1, Run: m.Header.Run, Trial: m.Trials[trial].ID, Task: m.Trials[trial].Task, Repetition: 1, Attempt: a.Number(),
			Outcome: record.Failed, AgentEnd: record.Yielded, Integrity: record.Checked, Mode: "live", Start: start, End: start.Add(1500 * time.Millisecond),
			AgentTime: 500 * time.Millisecond, Phases: []record.Phase{},
		}
		change(&r)
		step := json.RawMessage(`{"role":"agent","step":{"step_id":1,"source":"agent","message":"x"}}`)
		if publishErr := errors.Join(a.Append(record.StepsFile, step), a.Publish(r)); publishErr != nil {
			t.Fatal(publishErr)
		}
	}
	publish(0, func(r *record.Result) {
		r.Outcome, r.AgentEnd = record.EnvironmentError, ""
		r.Error = &record.Error{Boundary: record.ByEnvironment, Phase: record.PhaseCreate, Message: "no\x1b[31m room,\n\"quoted\""}
	})
	publish(0, func(r *record.Result) {
		r.Score, r.Scores = &score, map[string]float64{"reward": 0.5, "s\x00tyle": 2}
		r.Usage = []record.Usage{
			{Role: "agent", Model: "m", Requests: 2, InputTokens: 100, OutputTokens: 10, CostUSD: &cost},
			{Role: "judge", Model: "j", Requests: 1, InputTokens: 7, OutputTokens: 1, CostUSD: &cost},
		}
		r.Labels = map[string]string{"status": "=odd\x1b[2J"}
		r.Findings = []record.Finding{{Finding: verifier.Finding{Code: "z"}}, {Finding: verifier.Finding{Code: "a"}}, {Finding: verifier.Finding{Code: "z"}}}
	})
	publish(1, func(r *record.Result) {
		r.Verdicts = []verifier.Verdict{{Checkpoints: []verifier.Checkpoint{{Name: "a\u009b", Passed: true}, {Name: "b", Note: "assert"}, {Name: "c", Skipped: true}}}}
	})
	lost, err := s.Begin(m.Trials[2].ID)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(lost.Abandon(), s.Close()); err != nil {
		t.Fatal(err)
	}
	runs, err := numbers.Read(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return &Run{Run: runs[0], Trials: runs[0].Index.Trials}
}

// written returns the table of a run in a format.
func written(t *testing.T, r *Run, f Format) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "table")
	if _, err := Table(r, f, file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTableHasARowForEachAttempt(t *testing.T) {
	t.Parallel()
	r := testRun(t)
	rows, err := csv.NewReader(bytes.NewReader(written(t, r, CSV))).ReadAll()
	if err != nil || len(rows) != 6 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	counts := map[string]int{}
	for _, row := range rows[1:] {
		if row[at["counts"]] == "true" {
			counts[row[at["trial"]]]++
		}
	}
	if len(counts) != 4 {
		t.Errorf("rows that count: %v", counts)
	}
	for i, want := range []map[string]string{
		{
			"task": "retried", "attempt": "1", "counts": "false", "outcome": "environment_error", "measured": "false", "agent_end": "", "score": "",
			"error": "no\uFFFD[31m room,\n\"quoted\"", "error_boundary": "environment", "error_phase": "create", "requests": "", "steps": "1",
		},
		{
			"task": "retried", "attempt": "2", "counts": "true", "outcome": "failed", "measured": "true", "score": "0.5", "score_reward": "0.5", "score_s\uFFFDtyle": "2",
			"label_status": "=odd\uFFFD[2J", "checkpoints_passed": "", "checkpoints": "",
			"requests": "3", "input_tokens": "100", "agent_cost_usd": "0.25", "cost_usd": "0.5", "agent_s": "0.5", "wall_s": "1.5",
			"start": "2026-01-02T03:04:06.123456789Z", "findings": "3", "finding_codes": "a z", "axis_agent": "a", "axis_effort": "high", "state": "published",
		},
		{
			"task": "=cmd|' /C calc'!A0", "attempt": "1", "counts": "true", "axis_effort": "", "score_reward": "", "cost_usd": "",
			"checkpoints_passed": "1", "checkpoints_failed": "1", "checkpoints_skipped": "1",
			"checkpoints": `[{"name":"a�","result":"passed"},{"name":"b","result":"failed","note":"assert"},{"name":"c","result":"skipped"}]`,
		},
		{"task": "killed", "attempt": "1", "counts": "true", "outcome": "not_run", "state": "abandoned", "measured": "", "integrity": ""},
		{"task": "never", "attempt": "", "counts": "true", "outcome": "not_run", "state": "none", "folder": "", "steps": ""},
	} {
		for name, value := range want {
			if n, ok := at[name]; !ok || rows[i+1][n] != value {
				t.Errorf("row %d, %s: %q, want %q", i+1, name, rows[i+1][n], value)
			}
		}
	}
}

// The three formats say the same, and say it again in the same bytes.
func TestFormatsAgree(t *testing.T) {
	t.Parallel()
	r := testRun(t)
	rows, err := csv.NewReader(bytes.NewReader(written(t, r, CSV))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Format{CSV, JSONL, Parquet} {
		if a, b := written(t, r, f), written(t, r, f); !bytes.Equal(a, b) {
			t.Errorf("%s: two exports differ", f)
		}
	}
	sameInJSON(t, rows, written(t, r, JSONL))
	sameInParquet(t, rows, written(t, r, Parquet))
}

func sameInJSON(t *testing.T, rows [][]string, table []byte) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(table))
	for n := 1; lines.Scan(); n++ {
		var got map[string]any
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		for i, name := range rows[0] {
			text := ""
			if got[name] != nil {
				text = strings.TrimSuffix(strings.Trim(string(must(json.Marshal(got[name]))), `"`), `\n`)
			}
			if plainOf(rows[n][i]) != text {
				t.Errorf("row %d, %s: %q in CSV, %q in JSON", n, name, rows[n][i], text)
			}
		}
	}
}

func sameInParquet(t *testing.T, rows [][]string, table []byte) {
	t.Helper()
	p := parquet.NewReader(bytes.NewReader(table))
	defer p.Close()
	for n := 1; ; n++ {
		got := map[string]any{}
		err := p.Read(&got)
		if errors.Is(err, io.EOF) && n == len(rows) {
			return
		}
		if err != nil {
			t.Fatalf("row %d of %d: %v", n, len(rows)-1, err)
		}
		for i, name := range rows[0] {
			if !equal(got[name], rows[n][i]) {
				t.Errorf("row %d, %s: %q in CSV, %v in Parquet", n, name, rows[n][i], got[name])
			}
		}
	}
}

// equal reports whether a value of Parquet is what a field of CSV says. Times have
// microseconds there.
func equal(v any, field string) bool {
	const micro = "2006-01-02T15:04:05.999999"
	switch v := v.(type) {
	case []byte:
		return string(v) == field
	case int64:
		return strconv.FormatInt(v, 10) == field || strings.HasPrefix(field, time.UnixMicro(v).UTC().Format(micro))
	case time.Time:
		return strings.HasPrefix(field, v.UTC().Format(micro))
	default:
		return plain(v) == field
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// plainOf writes a field of CSV as it is inside of a JSON text.
func plainOf(s string) string {
	return strings.TrimSuffix(strings.Trim(string(must(json.Marshal(s))), `"`), `\n`)
}

// Trajectories of a run that somebody else made: links are not followed, files
// outside are not copied, and what is not valid is named.
func TestTrajectoriesOfAStranger(t *testing.T) {
	t.Parallel()
	r := testRun(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := report.Folder(r.Dir, r.Index.Trials[0], 2), report.Folder(r.Dir, r.Index.Trials[1], 1)
	text := `{"agent":{"name":"a","version":"1"},"steps":[{"step_id":1,"source":"user","message":[` +
		`{"type":"image","source":{"media_type":"image/png","path":"../../../secret"}},{"type":"image","source":{"media_type":"image/png","path":"agent/a.png"}}]}]}`
	if err := errors.Join(
		os.WriteFile(filepath.Join(first, record.TrajectoryFile), []byte(text), 0o600), os.MkdirAll(filepath.Join(first, "agent"), 0o755),
		os.WriteFile(filepath.Join(first, "agent", "a.png"), []byte("png"), 0o600), os.Symlink(secret, filepath.Join(second, record.TrajectoryFile)),
	); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	done, err := Trajectories(r, out)
	if err != nil || done.Rows != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	names, _, err := untrusted.List(out, 100)
	dir := r.Index.Trials[0].Dir
	if want := []string{IndexFile, dir + "/agent/a.png", dir + "/trajectory.json"}; err != nil || strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("files %q, %v", names, err)
	}
	notes := strings.Join(done.Notes, "\n")
	for _, want := range []string{"leads out of the folder", "it is not a regular file", "2 trials have no trajectory"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes %q lack %q", notes, want)
		}
	}
	if _, err = Trajectories(r, out); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a folder with files: %v", err)
	}
}
