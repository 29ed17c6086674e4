package command

import (
	"encoding/json"
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
