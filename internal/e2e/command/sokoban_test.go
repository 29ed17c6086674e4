package command

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/surface"
)

const sokobanExperiment = `experiment "sokoban" {
  datasets    = [dataset.levels, dataset.published]
  environment = environment.room
  repeat      = 3
  matrix {
    agent = [agent.nop, agent.random, agent.oracle]
  }
}
dataset "levels" {
  format  = "sokoban"
  path    = "./levels"
  include = INCLUDE
}
dataset "published" {
  format = "sokoban"
  path   = "./published"
}
environment "room" {
  plugin  = "local"
  surface = "sokoban"
}
agent "nop" {
  plugin = "nop"
}
agent "random" {
  plugin = "random"
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
`

// playedIn returns the folders of the attempts of the only run in dir, with their
// results.
func playedIn(t *testing.T, dir string) map[string]record.Result {
	t.Helper()
	all := map[string]record.Result{}
	found, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1"))
	e2etest.Must(t, err)
	for _, attempt := range found {
		all[attempt] = *e2etest.Result(t, attempt)
	}
	return all
}

// surfaceOf returns the record of a surface without times, and without the number
// of the repetition, which is the seed of the reset.
func surfaceOf(t *testing.T, attempt string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(e2etest.Read(t, attempt, record.SurfaceFile)) {
		b.WriteString(untimed.ReplaceAllString(line, ""))
	}
	return b.String()
}

var untimed = regexp.MustCompile(`"time":"[^"]*",|"took_ns":[0-9]+,|"seed":[0-9]+,?`)

// Doing nothing gives 100 − 5 · bound, the shortest solution 100, and repetitions
// differ by chance alone. Levels that are rebuilt of their solutions are solved by these.
func TestLevelsOfSokoban(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir, include, levels := t.TempDir(), `["small-v0-1", "v1-2", "huge-v0-3"]`, 3
	if testlevel.All() {
		include, levels = `["*"]`, 60
	}
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "levels"), os.DirFS(filepath.Join(tree.Root, "examples", "sokoban", "levels"))))
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "published"), os.DirFS(filepath.Join(tree.Root, "tasks", "sokoban", "testdata", "published"))))
	e2etest.Write(t, dir, map[string]string{"berth.hcl": strings.Replace(sokobanExperiment, "INCLUDE", include, 1)})
	berth(t, dir, "run").want(t, 0)
	bounds := map[string]float64{}
	var ours map[string]struct{ Bound float64 }
	e2etest.Must(t, json.Unmarshal([]byte(e2etest.Read(t, dir, "levels", "levels.json")), &ours))
	for name, l := range ours {
		bounds[name] = l.Bound
	}
	var published map[string]struct{ Reward float64 }
	e2etest.Must(t, json.Unmarshal([]byte(e2etest.Read(t, dir, "published", "upper_bound.json")), &published))
	for name, l := range published {
		bounds[name] = l.Reward
	}
	attempts, first := playedIn(t, dir), map[string]string{}
	if len(attempts) != 9*(levels+len(published)) {
		t.Errorf("%d attempts, want three of three agents on %d levels", len(attempts), levels+len(published))
	}
	for attempt, r := range attempts {
		who := r.Cell["agent"]
		if r.Outcome != record.Scored || r.Score == nil || r.Integrity != record.Checked {
			t.Fatalf("%s of %s: %s, %s, %s", r.Task, who, r.Outcome, r.Integrity, pretty(r.Error))
		}
		rebuilt := ""
		if _, of := published[r.Task]; of {
			rebuilt = "rebuilt"
		}
		if r.Labels["level"] != rebuilt {
			t.Errorf("%s: labels %v", r.Task, r.Labels)
		}
		if who == "nop" && math.Abs(*r.Score-(100-5*bounds[r.Task])) > 1e-9 || who == "oracle" && *r.Score < 100 {
			t.Errorf("%s: %s has %v, and the bound is %v", r.Task, who, *r.Score, bounds[r.Task])
		}
		key, text := r.Task+" "+who, surfaceOf(t, attempt)
		if before, ok := first[key]; ok && (before != text) != (who == "random") {
			t.Errorf("%s: two repetitions differ: %t:\n%s\n%s", key, before != text, before, text)
		}
		first[key] = text
	}
}

// Random actions depend on the task and the repetition, and on nothing else: a second
// run has the same.
func TestRandomActionsOfTaskAndRepetition(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "levels"), os.DirFS(filepath.Join(tree.Root, "examples", "sokoban", "levels"))))
	text := strings.Replace(sokobanExperiment, "INCLUDE", `["small-v0-1", "v1-2", "huge-v0-3"]`, 1)
	text = strings.Replace(text, ", dataset.published", "", 1)
	text = strings.Replace(text, "dataset \"published\" {\n  format = \"sokoban\"\n  path   = \"./published\"\n}\n", "", 1)
	e2etest.Write(t, dir, map[string]string{"berth.hcl": strings.Replace(text, "agent.nop, agent.random, agent.oracle", "agent.random", 1)})
	berth(t, dir, "run").want(t, 0)
	berth(t, dir, "run").want(t, 0)
	trials, owners := map[string]string{}, map[string]string{}
	for attempt := range playedIn(t, dir) {
		trial, played := filepath.Base(filepath.Dir(attempt)), strings.Join(actionsOf(t, attempt), " ")
		if before, ok := trials[trial]; ok && before != played {
			t.Errorf("two runs of %s:\n%s\n%s", trial, before, played)
		}
		if other, ok := owners[played]; ok && other != trial {
			t.Errorf("%s and %s both play %s", trial, other, played)
		}
		trials[trial], owners[played] = played, trial
	}
	if len(trials) != 9 || len(owners) != 9 {
		t.Errorf("%d trials with %d sequences, want 9 of three levels and repetitions", len(trials), len(owners))
	}
}

// actionsOf returns the names of the actions that reached the surface.
func actionsOf(t *testing.T, attempt string) (names []string) {
	t.Helper()
	for _, l := range e2etest.Lines[surface.Line](t, attempt, record.SurfaceFile) {
		if l.Kind == surface.KindAct {
			names = append(names, l.Action)
		}
	}
	return names
}

// plannersExperiment has two planners and two models, of which one talks nonsense.
const plannersExperiment = `experiment "planners" {
  datasets    = [dataset.levels]
  environment = environment.room
  matrix {
    agent = [agent.global, agent.online]
    model = [model.player, model.nonsense]
  }
}
dataset "levels" {
  format = "sokoban"
  path   = "./levels"
}
environment "room" {
  plugin  = "local"
  surface = "sokoban"
}
agent "global" {
  plugin = "planner"
  config {
    mode = "global"
  }
}
agent "online" {
  plugin = "planner"
  config {
    am       = 4
    om       = 2
    max_loop = 8
  }
}
model "player" {
  provider = "script"
  name     = "gpt-5"
  script   = "./player.yaml"
}
model "nonsense" {
  provider = "script"
  name     = "gpt-5"
  script   = "./nonsense.yaml"
}
`

// Both planners play a level with a scripted model. What the model is shown is what
// am and om say, and never a reward. A model that talks nonsense has no number in
// the tables.
func TestPlannersOfSokoban(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir := t.TempDir()
	e2etest.Write(t, dir, map[string]string{
		"berth.hcl":         plannersExperiment,
		"levels/levels.txt": "; corridor\n#########\n#@ $   .#\n#########\n", "levels/levels.json": `{"corridor": {"bound": 10.5}}`,
		"player.yaml": "replies:\n  - when: {system: 'plan a task from beginning to end'}\n    text: \"### Actions\\nRight, Right, Right, Right, Right\"\n" +
			"  - when: {turn: 2}\n    text: \"I am not sure.\"\n    times: 1\n  - when: {last: '.'}\n    text: \"REPLY\\n# action\\nRight\"\n",
		"nonsense.yaml": "replies:\n  - when: {last: '.'}\n    text: I like trains.\n",
	})
	berth(t, dir, "run").want(t, 0)
	for attempt, r := range playedIn(t, dir) {
		cell := fmt.Sprint(r.Cell["agent"], " ", r.Cell["model"])
		if r.Outcome != record.Scored || r.Score == nil {
			t.Fatalf("%s: %s, %s", cell, r.Outcome, pretty(r.Error))
		}
		plays := r.Cell["model"] == "player"
		if want := map[bool]float64{true: 100, false: 47.5}[plays]; *r.Score != want || (r.Labels["ife"] == "") != plays {
			t.Errorf("%s: %v, labels %v; want %v", cell, *r.Score, r.Labels, want)
		}
		bodies := requestsOf(t, attempt)
		for _, b := range bodies {
			if strings.Contains(b, "10.9") || strings.Contains(b, "reward") {
				t.Errorf("%s: a reward is in a request: %s", cell, b)
			}
		}
		if r.Cell["agent"] == "online" && plays {
			last := bodies[len(bodies)-1]
			if pairs, pictures := strings.Count(last, "REPLY"), strings.Count(last, "data:image/png;base64,"); pairs != 4 || pictures != 2 {
				t.Errorf("the last of %d requests has %d pairs and %d pictures, want 4 and 2: %s", len(bodies), pairs, pictures, last)
			}
		}
		if want := map[string]int{"global player": 1, "online player": 6, "global nonsense": 3, "online nonsense": 24}[cell]; len(bodies) != want {
			t.Errorf("%s: %d requests, want %d", cell, len(bodies), want)
		}
	}
	tablesHaveNoNumber(t, dir)
}

// tablesHaveNoNumber looks for the two cells whose model talks nonsense.
func tablesHaveNoNumber(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{"show", "last"}, {"show", "last", "--by", "cell"}, {"compare", "last"}} {
		r := berth(t, dir, args...)
		r.want(t, 0)
		if n := len(ifeCell.FindAllString(r.out, -1)); n != 2 || strings.Contains(r.out, "47.5 ") {
			t.Errorf("%q has %d cells with ife, want 2:\n%s", args, n, r.out)
		}
	}
}

var ifeCell = regexp.MustCompile(`(?m)^.*nonsense.* ife( |$)`)

// requestsOf returns the requests to the model, from the record of the gateway.
func requestsOf(t *testing.T, attempt string) (bodies []string) {
	t.Helper()
	for line := range strings.Lines(e2etest.Read(t, attempt, record.ExchangesFile)) {
		var x struct {
			Request string `json:"request"`
		}
		e2etest.Must(t, json.Unmarshal([]byte(line), &x))
		b, err := recording.Fetch(filepath.Join(attempt, record.ModelDir), x.Request)
		e2etest.Must(t, err)
		bodies = append(bodies, string(b))
	}
	return bodies
}

// What is wrong in a dataset is said with its file and line.
func TestWrongLevelsOfSokoban(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e2etest.Write(t, dir, map[string]string{
		"berth.hcl": `experiment "x" {
  datasets    = [dataset.levels]
  environment = environment.room
  agent       = agent.nop
}
dataset "levels" {
  format = "sokoban"
  path   = "./levels"
}
environment "room" {
  plugin  = "local"
  surface = "sokoban"
}
agent "nop" {
  plugin = "nop"
}
`,
		"levels/levels.txt": "; good\n######\n#@$ .#\n######\n\n; open\n######\n#@$ . \n######\n\n; nobody\n#####\n#$ .#\n#####\n\n; many\n#####\n#@$$#\n# . #\n#####\n\n" +
			"; wide\n" + strings.Repeat("#", 10_000) + "\n\n; paid\n######\n#@$ .#\n######\n",
		"levels/levels.json":      `{"good": {"solution": "uRR"}, "paid": {"solution": "RR", "bound": 10.9}}`,
		"levels/upper_bound.json": "{\n\"1-Sokoban-v0\": {\"actions\": [\"R\"], \"steps\": 1, \"reward\": 10.8},\n\"2-Sokoban-v0\": {\"actions\": [" + strings.Repeat(`"r", `, 200_000) + "\"R\"], \"reward\": 1}}\n",
	})
	r := berth(t, dir, "plan")
	for _, want := range []string{
		`levels.txt:1: Wrong solution of a level: move 1, "u", walks through a wall`, "levels.txt:8: Not a level that can be played: it is open at the edge",
		"levels.txt:11: Not a level that can be played: it has no player", "levels.txt:16: Not a level that can be played: it has more boxes than targets: 2 and 1",
		"levels.txt:23: Not a level that can be played: it has 1 rows, and a row of 10000 characters: at most 40 are possible",
		"levels.txt:25: Reward does not fit the solution. The solution gives 10.8, and the bound is 10.9",
		"upper_bound.json:2: The level cannot be rebuilt: its solution gives the reward 10.9, and the file says 10.8",
		"upper_bound.json:3: The level cannot be rebuilt: it has 200001 actions, and at most 10000 are read",
	} {
		if r.code == 0 || !strings.Contains(r.out+r.stderr, want) {
			t.Errorf("plan ended with %d, without %q:\n%s%s", r.code, want, r.out, r.stderr)
		}
	}
	e2etest.Must(t, os.Remove(filepath.Join(dir, "levels", "upper_bound.json")))
	wrong := strings.Replace(e2etest.Read(t, dir, "berth.hcl"), `surface = "sokoban"`, "surface = \"sokoban\"\n  surface_config {\n    size = 20\n  }", 1)
	e2etest.Write(t, dir, map[string]string{"berth.hcl": wrong, "levels/levels.txt": "; good\n######\n#@$ .#\n######\n", "levels/levels.json": "{}"})
	if r := berth(t, dir, "plan"); r.code == 0 || !strings.Contains(r.out+r.stderr, "The size 20 of a cell is not possible") {
		t.Errorf("plan ended with %d:\n%s%s", r.code, r.out, r.stderr)
	}
}
