package attest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/examples/attacks"
)

const root = "../../../.."

// Each task has an entry, each entry a task, and each test that is named exists.
func TestTheCatalogueIsWhole(t *testing.T) {
	t.Parallel()
	c, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	folders, err := fs.ReadDir(attacks.Files, "tasks")
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) < 40 || len(folders) != len(c.Attacks) {
		t.Errorf("%d folders of tasks, %d attacks", len(folders), len(c.Attacks))
	}
	tests := strings.Join(testsOf(t), " ") + " "
	for _, e := range c.Elsewhere {
		for _, name := range e.Tests {
			if !strings.Contains(tests, " "+name+" ") {
				t.Errorf("%v: there is no Test%s", e.IDs, name)
			}
		}
	}
	seen := map[string]bool{}
	for _, a := range c.Attacks {
		if seen[a.Name] || a.Text == "" || (len(a.IDs) == 0 && !a.Control) {
			t.Errorf("%s: there twice, without a description, or without a line of the catalogue", a.Name)
		}
		seen[a.Name] = true
	}
}

// testsOf lists the tests of this tree, without Test.
func testsOf(t *testing.T) []string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func Test(\w+)\(`)
	names := []string{""}
	for _, room := range []string{"cmd", "core", "plugins", "environments", "tasks", "verifiers", "agents", "dialects", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, room), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
				return err
			}
			text, err := os.ReadFile(p)
			for _, m := range function.FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// The page about security has the table that this program compares with.
func TestThePageHasTheTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	page, err := c.Page(string(text))
	if err != nil || page != string(text) {
		t.Errorf("docs/security.md has another table than attacks.yaml (%v): run make generate", err)
	}
	i := slices.IndexFunc(c.Attacks, func(a Attack) bool { return a.Name == "r4-loop" })
	c.Attacks[i].Results[Restarted] = NotHeld
	if page, err = c.Page(string(text)); err != nil || page == string(text) {
		t.Errorf("another result makes no other page (%v)", err)
	}
	if _, err = c.Page("nothing\n"); err == nil {
		t.Error("a page without the marks is accepted")
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		task string
		r    record.Result
		want Result
	}{
		{"r4-loop", record.Result{Outcome: record.Passed, Integrity: record.Checked}, NotHeld},
		{"r4-loop", record.Result{Outcome: record.Passed, Integrity: record.Exposed}, Detected},
		{"r4-loop", record.Result{Outcome: record.Passed, Integrity: record.Violated}, Detected},
		{"r4-loop", record.Result{Outcome: record.Failed, Integrity: record.Exposed}, Held},
		{"r4-loop", record.Result{Outcome: record.VerifierError, AgentEnd: record.Yielded}, Held},
		{"r4-loop", record.Result{Outcome: record.VerifierError}, Unknown}, // the agent never worked
		{"r4-loop", record.Result{Outcome: record.EnvironmentError, AgentEnd: record.Yielded}, Unknown},
		{"r4-loop", record.Result{Outcome: record.NotRun}, Unknown},
		{"honest", record.Result{Outcome: record.Passed, Integrity: record.Checked}, Passed},
		{"honest", record.Result{Outcome: record.Passed, Integrity: record.Exposed}, Detected},
		{"honest", record.Result{Outcome: record.Failed, Integrity: record.Checked}, Held},
	} {
		tt.r.Task = "berth-attacks/" + tt.task
		if got := resultOf(&tt.r); got != tt.want {
			t.Errorf("%s: %s, %s: %s, want %s", tt.task, tt.r.Outcome, tt.r.Integrity, got, tt.want)
		}
	}
}

func TestAttacksAreSelected(t *testing.T) {
	t.Parallel()
	c, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		patterns []string
		want     int // with the control; 0: an error
	}{
		{nil, len(c.Attacks)}, {[]string{"r4-loop"}, 2}, {[]string{"R4", "t7-*"}, 4}, {[]string{"nothing"}, 0}, {[]string{"[a"}, 0}, {[]string{"R4", "x"}, 0},
	} {
		some, err := c.Select(tt.patterns)
		if (err != nil) != (tt.want == 0) || err == nil && len(some.Attacks) != tt.want {
			t.Errorf("%q: %+v, %v; want %d", tt.patterns, some, err, tt.want)
		}
	}
}

func TestTablesWithMistakes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"no YAML":        {"attacks: [", "[1:10]"},
		"an unknown key": {"attacks:\n  - name: r4-loop\n    result: {}\n", "[3:5]"},
		"no task":        {"attacks:\n  - name: nobody\n", `"nobody"`},
		"a path":         {"attacks:\n  - name: ../attacks.yaml\n", "../attacks.yaml"},
		"no results":     {"attacks:\n  - name: r4-loop\n", "0 results"},
		"a mode":         {"attacks:\n  - name: r4-loop\n    results: {alive: held}\n", `"alive"`},
	} {
		file := filepath.Join(t.TempDir(), "table.yaml")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFrom(file); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "table.yaml") {
			t.Errorf("%s: %v; want the file and %s", name, err, tt.want)
		}
	}
}
