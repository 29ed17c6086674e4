package command

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// football copies the examples and the plugin into a folder. The engine is that of
// BERTH_FOOTBALL, or of the user; without one, engine is empty.
func football(t *testing.T) (dir, engine string) {
	t.Helper()
	tree.NeedsSandbox(t)
	dir = t.TempDir()
	program := "berth-plugin-football"
	source := filepath.Join(tree.Root, "environments", "football", program)
	pythonPlugin(t, dir, "football", e2etest.Read(t, source, program))
	modules, err := filepath.Glob(filepath.Join(source, "*.py"))
	e2etest.Must(t, err)
	for _, m := range modules {
		e2etest.Write(t, dir, map[string]string{"plugins/" + program + "/" + filepath.Base(m): e2etest.Read(t, m)})
	}
	home, err := os.UserHomeDir()
	e2etest.Must(t, err)
	engine = cmp.Or(os.Getenv("BERTH_FOOTBALL"), filepath.Join(home, ".cache", "berth-football"))
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "football"), os.DirFS(filepath.Join(tree.Root, "examples", "football"))))
	for _, file := range []string{"football/berth.hcl", "football/long/berth.hcl"} {
		text := e2etest.Read(t, dir, file)
		e2etest.Write(t, dir, map[string]string{file: strings.Replace(text, `surface = "football"`, fmt.Sprintf("surface = \"football\"\n  surface_config {\n    engine = %q\n  }", engine), 1)})
	}
	if _, err := os.Stat(filepath.Join(engine, "ready")); err != nil {
		engine = ""
	}
	return dir, engine
}

// matches runs an experiment, and returns its attempts by their trials.
func matches(t *testing.T, dir, experiment string) map[string]string {
	t.Helper()
	before := playedIn(t, dir)
	r := berthWith(t, dir, []string{"BERTH_PLUGIN_PATH=" + filepath.Join(dir, "plugins") + ":" + filepath.Join(tree.Root, "bin", "plugins")}, "run", experiment)
	r.want(t, 0)
	found := map[string]string{}
	for attempt, result := range playedIn(t, dir) {
		if _, had := before[attempt]; had {
			continue
		}
		if result.Outcome != record.Scored || result.Score == nil {
			t.Fatalf("%s: %s, %s", attempt, result.Outcome, pretty(result.Error))
		}
		found[filepath.Base(filepath.Dir(attempt))] = attempt
	}
	return found
}

// Without the engine, the plan says what is missing and what builds it.
func TestFootballWithoutItsEngine(t *testing.T) {
	t.Parallel()
	dir, _ := football(t)
	text := e2etest.Read(t, dir, "football", "berth.hcl")
	_, rest, _ := strings.Cut(text, "engine = \"")
	folder, _, _ := strings.Cut(rest, `"`)
	e2etest.Write(t, dir, map[string]string{"football/berth.hcl": strings.ReplaceAll(text, folder, "/nowhere")})
	path := []string{"BERTH_PLUGIN_PATH=" + filepath.Join(dir, "plugins") + ":" + filepath.Join(tree.Root, "bin", "plugins")}
	r := berthWith(t, dir, path, "plan", "football")
	want := "The engine of Google Research Football is not in /nowhere: there is no venv/bin/python. Run scripts/football-for-tests /nowhere"
	if r.code == 0 || !strings.Contains(r.stderr, want) {
		t.Errorf("plan ended with %d, without %q:\n%s%s", r.code, want, r.out, r.stderr)
	}
}

// Agents without a model and both planners play matches of the real engine, and the
// same seeds give the same matches. A model that talks nonsense has no number.
func TestMatchesOfFootball(t *testing.T) {
	dir, engine := football(t)
	if engine == "" {
		t.Skip("the engine of Google Research Football is not built: scripts/football-for-tests, and BERTH_FOOTBALL if it is in another folder")
	}
	t.Parallel()
	text := e2etest.Read(t, dir, "football", "berth.hcl")
	text = strings.Replace(text, "  model       = model.scripted\n", "", 1)
	text = strings.Replace(text, "  matrix {\n", "  matrix {\n    model = [model.scripted, model.nonsense]\n", 1) + "model \"nonsense\" {\n  provider = \"script\"\n  script = \"./nonsense.yaml\"\n}\n"
	e2etest.Write(t, dir, map[string]string{"football/berth.hcl": text, "football/nonsense.yaml": "replies:\n  - when: {last: \".\"}\n    text: I like trains.\n"})
	first, second := matches(t, dir, "football"), matches(t, dir, "football")
	if len(first) != 16 || len(second) != 16 {
		t.Fatalf("%d and %d attempts, want 16 each", len(first), len(second))
	}
	for trial, attempt := range first {
		a, b := surfaceOf(t, attempt), surfaceOf(t, second[trial])
		if a != b {
			t.Errorf("%s: two matches of one seed differ", trial)
		}
		r := e2etest.Result(t, attempt)
		planner := r.Cell["agent"] == "global" || r.Cell["agent"] == "online"
		if nonsense := planner && r.Cell["model"] == "nonsense"; (r.Labels["ife"] != "") != nonsense || planner && (*r.Score > 10) == nonsense {
			t.Errorf("%s: %v, labels %v", trial, *r.Score, r.Labels)
		}
	}
}
