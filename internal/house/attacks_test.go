package house

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/berth-eval/berth/internal/testlevel"
)

// The table of docs/security.md says what the tasks of the attack suite expect.
func TestTheTableOfAttacksIsThatOfTheirTasks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	testlevel.Must(t, err)
	_, page, _ := strings.Cut(string(text), "## The attacks\n")
	page, _, _ = strings.Cut(page, "\n## ")
	tasks, err := os.ReadDir(filepath.Join(root, "examples", "attacks", "tasks"))
	testlevel.Must(t, err)
	if rows := strings.Count(page, "\n| `"); rows != len(tasks)-1 || rows < 40 {
		t.Errorf("%d rows, and %d tasks with the control", rows, len(tasks))
	}
	for _, e := range tasks {
		if row := rowOf(t, e.Name()); e.Name() != "honest" && !strings.Contains(page, row) {
			t.Errorf("docs/security.md lacks this row, or has another one:\n%s", row)
		}
	}
}

func rowOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples", "attacks", "tasks", name, "task.toml"))
	testlevel.Must(t, err)
	var task struct {
		Task struct {
			Description string
			Keywords    []string
		}
		Metadata struct {
			Berth struct{ Expect map[string]string }
		}
	}
	testlevel.Must(t, toml.Unmarshal(text, &task))
	words := map[string]string{"": "–", "failed": "held", "exposed": "detected", "passed": "not held"}
	row := fmt.Sprintf("| `%s` | %s | %s |", name, strings.Join(task.Task.Keywords[1:], ", "), task.Task.Description)
	for _, mode := range []string{"live", "restarted", "image", "separate"} {
		row += " " + words[task.Metadata.Berth.Expect[mode]] + " |"
	}
	return row
}

// Each test that docs/security.md names exists.
func TestTestsThatTheSecurityPageNamesExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	testlevel.Must(t, err)
	_, page, _ := strings.Cut(string(text), "## Attacks that tests of Berth cover")
	var tree strings.Builder
	for _, f := range files(t, ".") {
		if strings.HasSuffix(f.path, "_test.go") {
			tree.WriteString(f.text)
		}
	}
	named := regexp.MustCompile("`([A-Z]\\w{5,})`").FindAllStringSubmatch(page, -1)
	for _, m := range named {
		if !strings.Contains(tree.String(), "func Test"+m[1]+"(") {
			t.Errorf("docs/security.md names Test%s, which does not exist", m[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
}
