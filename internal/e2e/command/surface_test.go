package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// The example of a surface: a game in Python on the sandboxes of local, which the
// oracle wins by its list of actions.
func TestTheSurfaceExample(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"tictactoe", "won"} {
		program := "berth-plugin-" + name
		text := e2etest.Read(t, tree.Root, "examples", "plugins-python", program, program)
		pythonPlugin(t, dir, name, strings.Replace(text, "/usr/bin/env python3", "/usr/bin/python3", 1))
	}
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "surface"), os.DirFS(filepath.Join(tree.Root, "examples", "surface"))))
	path := []string{"BERTH_PLUGIN_PATH=" + filepath.Join(dir, "plugins") + ":" + filepath.Join(tree.Root, "bin", "plugins")}
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"run", "surface"}, 0, []string{"1 passed + 1 failed"}},
	} {
		r := berthWith(t, dir, path, tt.args...)
		if r.code != tt.code {
			t.Fatalf("%q ended with %d:\n%s%s", tt.args, r.code, r.out, r.stderr)
		}
		for _, w := range tt.want {
			if !strings.Contains(r.out+r.stderr, w) {
				t.Errorf("%q printed no %q:\n%s%s", tt.args, w, r.out, r.stderr)
			}
		}
	}
	task := filepath.Join(dir, "surface", "tasks", "tictactoe", "task.toml")
	e2etest.Write(t, filepath.Dir(task), map[string]string{"task.toml": strings.Replace(e2etest.Read(t, task), `"place"`, `"plce"`, 1)})
	if r := berthWith(t, dir, path, "plan", "surface"); r.code == 0 || !strings.Contains(r.stderr, `the surface has no action "plce"`) || !strings.Contains(r.stderr, `Did you mean "place"?`) {
		t.Errorf("a misspelt action is planned with %d:\n%s%s", r.code, r.out, r.stderr)
	}
	for _, p := range []string{"surface.jsonl", "frames", "captures"} {
		if hits, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1", "agent", "**", p)); err != nil || len(hits) > 0 {
			t.Errorf("the agent has %q, %v", hits, err)
		}
	}
}
