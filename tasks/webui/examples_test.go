package webui

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

var update = flag.Bool("update", false, "write the solutions of the examples")

// The solutions of the examples write the pages themselves, so that the oracle has
// to reach 1.
func TestSolutionsOfTheExamplesAreTheirPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../examples/webui/tasks/*")
	if err != nil || len(pages) != 12 {
		t.Fatalf("%q, %v; want 12 pages", pages, err)
	}
	for _, dir := range pages {
		var want strings.Builder
		for _, file := range []struct{ name, action string }{{"style.css", "write_css"}, {"script.js", "write_javascript"}, {"index.html", "write_html"}} {
			content, err := os.ReadFile(filepath.Join(dir, file.name))
			if err != nil {
				continue // a page without it
			}
			line, err := json.Marshal(map[string]any{"name": file.action, "arguments": map[string]string{"content": string(content)}})
			if err != nil {
				t.Fatal(err)
			}
			want.WriteString(string(line) + "\n")
		}
		solution := filepath.Join(dir, "solution", "actions.jsonl")
		if *update {
			if err := os.WriteFile(solution, []byte(want.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(solution); err != nil || string(got) != want.String() {
			t.Errorf("%s is not its page: run the test with -update (%v)", solution, err)
		}
		tk, problems, err := Format{}.Load(t.Context(), dir, task.Options{})
		if err != nil || tk == nil || len(problems) > 0 || tk.Stages[0].Reference == nil {
			t.Errorf("%s: %v, %v", dir, problems, err)
		}
	}
}
