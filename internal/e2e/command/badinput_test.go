package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// numbersOf are commands that make numbers of a run, each in its own way.
var numbersOf = [][]string{
	{"show"}, {"show", "--by", "cell"}, {"compare"}, {"report", "-o", "report.html"}, {"export", "--to", "csv", "-o", "all.csv"},
}

// onRun returns the arguments of one of numbersOf for a run.
func onRun(args []string, run string) []string {
	return append([]string{args[0], run}, args[1:]...)
}

// Runs whose files were made by another version, were damaged, or have scores that
// are not numbers.
func TestNumbersOfBadRecords(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	experiment(t, dir, "agent.oracle, agent.nop", "")
	berth(t, dir, "run").want(t, 0)
	runs := e2etest.Found(t, 1, dir, "runs", "*")
	changed := func(name string, change func(run string)) string {
		run := filepath.Join(dir, "runs", name)
		e2etest.Must(t, os.CopyFS(run, os.DirFS(runs[0])))
		change(run)
		return run
	}
	in := func(run, pattern, old, with string) {
		files, err := filepath.Glob(filepath.Join(run, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", pattern, files, err)
		}
		edit(t, files[0], old, with)
	}

	old := changed("old", func(run string) { in(run, "manifest.jsonl", `"version":1`, `"version":7`) })
	for _, args := range append(numbersOf, []string{"resume"}, []string{"regrade"}) {
		r := berth(t, dir, onRun(args, old)...)
		if r.want(t, 2); !strings.Contains(r.stderr, "it has version 7, this berth reads 1: use the berth that made it") {
			t.Errorf("%q of another version: %s", args, r.stderr)
		}
	}

	// The end of an attempt is in no record any more.
	damaged := changed("damaged", func(run string) {
		in(run, "journal/*", `"outcome":"failed"`, `"outcome":"passed"`)
		in(run, "trials/*nop*/attempt-1/result.json", `"outcome"`, `"outc`)
	})
	r := berth(t, dir, "show", damaged, "--by", "cell", "--force")
	if r.want(t, 0); !strings.Contains(r.out, "records could not be read, so that trials may be missing") || !strings.Contains(r.out, "nop: 1 of 1 planned trials have no result") {
		t.Errorf("damaged records: %s", r.out)
	}
	for _, args := range numbersOf[1:4] {
		r = berth(t, dir, onRun(args, damaged)...)
		if r.want(t, 2); !strings.Contains(r.stderr, "nop: 1 of 1 planned trials have no result") {
			t.Errorf("%q of damaged records: %s", args, r.stderr)
		}
	}
	r = berth(t, dir, "compare", damaged, "--force")
	if r.want(t, 2); !strings.Contains(r.stderr, "cell nop has no measured trial, so that there is nothing to compare") {
		t.Errorf("an empty cell is compared: %s", r.stderr)
	}

	// JSON has no way to write these. A line with such a score is damaged, also if
	// its sum is right, and the result counts.
	for _, score := range []string{"NaN", "Infinity", "1e999"} {
		strange := changed(score, func(run string) { rescore(t, run, score) })
		r = berth(t, dir, "show", strange, "--by", "cell")
		if r.want(t, 0); !strings.Contains(r.out, "could not be read") || !strings.Contains(r.out, "20.7 to 100.0") {
			t.Errorf("score %s: %s", score, r.out)
		}
		if r = berth(t, dir, "show", strange, "--json"); answer[types.ShowRun](t, r, "cli-show-run").Damaged == 0 {
			t.Errorf("score %s is not counted as damage", score)
		}
	}
}

// rescore gives attempts in the journal another score, with the right sums.
func rescore(t *testing.T, run, score string) {
	t.Helper()
	files := e2etest.Found(t, 1, run, "journal", "*")
	text, err := os.ReadFile(files[0])
	e2etest.Must(t, err)
	var out bytes.Buffer
	n := 0
	for line := range bytes.Lines(text) {
		var l struct {
			Sum   string          `json:"sum"`
			Entry json.RawMessage `json:"entry"`
		}
		e2etest.Must(t, json.Unmarshal(line, &l))
		entry := bytes.Replace(l.Entry, []byte(`"score":1`), []byte(`"score":`+score), 1)
		if !bytes.Equal(entry, l.Entry) {
			n++
		}
		sum := crc32.Checksum(entry, crc32.MakeTable(crc32.Castagnoli))
		fmt.Fprintf(&out, "{\"sum\":\"%08x\",\"entry\":%s}\n", sum, entry)
	}
	if n == 0 {
		t.Fatal("no attempt has the score 1")
	}
	e2etest.Must(t, os.WriteFile(files[0], out.Bytes(), 0o600))
}

// Tasks whose content changed between two runs are compared only by name, which is
// said.
func TestTasksThatChangedBetweenRuns(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		task(t, filepath.Join(dir, "tasks"), name, "touch /app/done")
	}
	experiment(t, dir, "agent.oracle", "")
	berth(t, dir, "run").want(t, 0)
	edit(t, filepath.Join(dir, "tasks", "two", "instruction.md"), "Write", "Please write")
	berth(t, dir, "run").want(t, 0)
	edit(t, filepath.Join(dir, "tasks", "one", "instruction.md"), "Write", "Please write")
	berth(t, dir, "run").want(t, 0)
	runs := e2etest.Found(t, 3, dir, "runs", "*")
	r := berth(t, dir, "compare", runs[0], runs[1])
	if r.want(t, 0); !strings.Contains(r.out, "1 task × 1, 1 other left out") {
		t.Errorf("one of two tasks changed: %s", r.out)
	}
	r = berth(t, dir, "compare", runs[0], runs[1], "--force", "--json")
	r.want(t, 0)
	if c := answer[types.Comparison](t, r, "cli-compare"); c.Pairs[0].Tasks != 2 || c.Pairs[0].Changed != 0 {
		t.Errorf("by name: %+v", c.Pairs)
	}
	r = berth(t, dir, "compare", runs[0], runs[2])
	if r.want(t, 2); !strings.Contains(r.stderr, "the content of all 2 tasks that both ran differs. Compare them by name with --force") {
		t.Errorf("both tasks changed: %s", r.stderr)
	}
	if r = berth(t, dir, "show", runs[0], runs[2], "--by", "task"); !strings.Contains(r.out, "2 tasks have another content in another run") {
		t.Errorf("as one run: %s", r.out)
	}
}
