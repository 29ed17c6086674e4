package command

import (
	"cmp"
	"encoding/json"
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

// Without the engine, the plan and the doctor say what is missing and what builds it.
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
	r = berthWith(t, dir, append(path, "HOME="+dir, "XDG_CACHE_HOME="+filepath.Join(dir, "cache")), "doctor")
	for _, want := range []string{"note     engine of football: ", "→ Run scripts/football-for-tests " + dir, "ok       surface football\n"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("doctor ended with %d, without %q:\n%s%s", r.code, want, r.out, r.stderr)
		}
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

// A match of 400 frames without pictures, and 20 actions with a picture after each.
// Prompts have the pairs and pictures that am and om say.
func TestLongMatchesOfFootball(t *testing.T) {
	dir, engine := football(t)
	if engine == "" {
		t.Skip("the engine of Google Research Football is not built: scripts/football-for-tests, and BERTH_FOOTBALL if it is in another folder")
	}
	t.Parallel()
	for trial, attempt := range matches(t, dir, "football/long") {
		steps, drawn := 400, strings.HasPrefix(trial, "alone-1-pictures")
		if drawn {
			steps = 20
		}
		r := e2etest.Result(t, attempt)
		agent := r.Cell["agent"]
		if agent == "nop" {
			steps = 0
		}
		frames := 0
		for line := range strings.Lines(e2etest.Read(t, attempt, record.SurfaceFile)) {
			var l struct {
				Info struct{ Frames []json.RawMessage }
			}
			e2etest.Must(t, json.Unmarshal([]byte(line), &l))
			frames += len(l.Info.Frames)
		}
		kept, err := filepath.Glob(filepath.Join(attempt, "frames", "*"))
		e2etest.Must(t, err)
		t.Logf("%s: %d frames, %d pictures, score %g", trial, frames, len(kept), *r.Score)
		if frames > steps || agent == "online" && frames != steps || agent == "random" && frames == 0 { // on another machine, random may lose the ball
			t.Errorf("%s has %d frames, want %d", trial, frames, steps)
		}
		if want := map[bool]int{true: frames + 1, false: 0}[drawn]; len(kept) != want {
			t.Errorf("%s has %d pictures, want %d", trial, len(kept), want)
		}
		if agent != "online" || !drawn {
			continue
		}
		bodies := requestsOf(t, attempt)
		last := bodies[len(bodies)-1]
		if pairs, shown := strings.Count(last, `"role":"assistant"`), strings.Count(last, "data:image/png;base64,"); len(bodies) != 20 || pairs != 4 || shown != 2 || strings.Contains(last, "reward") {
			t.Errorf("the last of %d requests has %d pairs and %d pictures, want 20, 4 and 2", len(bodies), pairs, shown)
		}
	}
}
