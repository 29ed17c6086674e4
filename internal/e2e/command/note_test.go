package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A reader labels an attempt. The label is shown, selected by and exported, and
// the record stays as it was.
func TestAReaderLabelsAnAttempt(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	berth := func(code int, args ...string) result {
		t.Helper()
		r := berthWith(t, dir, nil, args...)
		if r.code != code {
			t.Fatalf("berth %q: %d, want %d\n%s\n%s", args, r.code, code, r.out, r.stderr)
		}
		return r
	}
	berth(0, "run", filepath.Join(tree.Root, "examples", "quickstart"))
	trial := "berth_hello-file--nop"
	// A user may have no account, and then no variables with its name and home.
	if r := berthWith(t, dir, []string{"USER=", "HOME="}, "note", "last", trial, "--label", "bad task", "--text", "It needs\na network."); r.code != 0 {
		t.Fatalf("berth note: %d\n%s\n%s", r.code, r.out, r.stderr)
	}
	berth(0, "note", "last", trial, "--label", "read")
	berth(0, "note", "last", trial, "--label", "read", "--remove")
	if r := berth(0, "note", "last"); !strings.Contains(r.out, "bad task") || strings.Contains(r.out, "read ") {
		t.Errorf("the notes of the run:\n%s", r.out)
	}
	if r := berth(0, "show", "last", trial); !strings.Contains(r.out, "bad task, by ") || !strings.Contains(r.out, "a network.") {
		t.Errorf("the attempt is shown without its note:\n%s", r.out)
	}
	var shown output.ShowRun
	e2etest.Must(t, json.Unmarshal([]byte(berth(0, "show", "last", "--json", "--select", `"bad task" in notes`).out), &shown))
	if len(shown.Trials) != 1 || shown.Trials[0].Task != "berth/hello-file" {
		t.Errorf("selected by the label: %+v", shown.Trials)
	}
	table := filepath.Join(dir, "t.csv")
	berth(0, "export", "last", "--to", "csv", "-o", table, "--select", `"bad task" in notes`)
	b, err := os.ReadFile(table)
	e2etest.Must(t, err)
	if strings.Count(string(b), "bad task") != 1 || strings.Count(strings.TrimSpace(string(b)), "\n") != 1 {
		t.Errorf("exported:\n%s", b)
	}
	berth(0, "audit", "last")
	for want, args := range map[string][]string{
		"has no label":      {"note", "last", trial, "--label", "read", "--remove"},
		"needs a trial":     {"note", "last", "--label", "x"},
		"need --label":      {"note", "last", trial, "--text", "x"},
		"a label is one":    {"note", "last", trial, "--label", "a\x1bb"},
		"has no attempt \"": {"note", "last", trial, "7", "--label", "x"},
		"no trial \"zzz\"":  {"note", "last", "zzz", "--label", "x"},
	} {
		if r := berthWith(t, dir, nil, args...); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("berth %q: %d, want %q\n%s", args, r.code, want, r.stderr)
		}
	}
}
