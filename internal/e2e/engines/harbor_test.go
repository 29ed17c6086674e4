package engines

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// given is what Harbor, or Berth, gives an agent for a task.
type given map[string]float64

// parity is one task of testdata/harbor. The lines above its files say what it
// is about, and what an agent gets: `oracle {"reward": 1}`, or `oracle none` if
// there is no reward. Harbor 0.25.0 gave these to the same files on the same
// kind of daemon. Where Berth differs on purpose, a line `berth oracle …` has
// what Berth gives, and the text says why. In files, <CR> stands for a carriage
// return.
type parity struct {
	name   string
	files  []txtar.File
	scores map[string]given // by agent
}

// parities reads the tasks.
func parities(t *testing.T) (all []parity) {
	t.Helper()
	files, err := filepath.Glob("testdata/harbor/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no tasks", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		task := parity{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), files: a.Files, scores: map[string]given{}}
		for text := range strings.Lines(string(a.Comment)) {
			line, ours := strings.CutPrefix(strings.TrimSpace(text), "berth ")
			agent, scores, _ := strings.Cut(line, " ")
			if agent != "oracle" && agent != "nop" || task.scores[agent] != nil && !ours {
				continue
			}
			g := given{}
			if scores != "none" {
				if err := json.Unmarshal([]byte(scores), &g); err != nil {
					t.Fatalf("%s: %q: %v", file, line, err)
				}
			}
			task.scores[agent] = g
		}
		if len(task.scores) != 2 {
			t.Fatalf("%s does not say what oracle and nop get", file)
		}
		all = append(all, task)
	}
	return all
}

// Tasks in Harbor's format get the rewards here that the real Harbor gives
// them, by the reference solution and by an agent that does nothing.
func TestRewardsAreThoseOfHarbor(t *testing.T) {
	t.Parallel()
	const image = "localhost/berth-test/debian:1"
	p := newPlace(t, machineFor(t, "docker", image).env(), "PARITY_GIVEN=from-host", "PARITY_JUDGE_KEY=sk-judge-0123456789")
	want := map[string]map[string]given{}
	for _, task := range parities(t) {
		want["parity/"+task.name] = task.scores
		for _, f := range task.files {
			p.write(filepath.Join("tasks", task.name, f.Name), strings.ReplaceAll(string(f.Data), "<CR>", "\r"))
		}
	}
	p.experiment("docker", "", "limits {\n    in_flight = 4\n  }")
	hcl, err := os.ReadFile(filepath.Join(p.dir, "berth.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	p.write("berth.hcl", strings.NewReplacer("[agent.oracle]", "[agent.oracle, agent.nop]", `"./tasks"`, "\"./tasks\"\n  allow_env = [\"PARITY_*\"]").Replace(string(hcl)))
	s := p.start("run", ".")
	// Some seventy trials, four at a time, beside the other tests of the engines.
	if code := p.endWithin(s, 8*time.Minute); code != 1 { // some tasks have errors on purpose
		t.Fatalf("exit code %d\n%s\n%s", code, s.out.String(), s.err.String())
	}
	seen := 0
	for _, tr := range p.show().Trials {
		if tr.Accepted == 0 {
			continue
		}
		seen++
		r := e2etest.Result(t, tr.Attempts[tr.Accepted-1].Dir)
		agent := r.Cell["agent"]
		if got := given(r.Scores); !maps.Equal(got, want[tr.Task][agent]) {
			t.Errorf("%s, %s: %v, %s %+v; Harbor gives %v", tr.Task, agent, got, r.Outcome, r.Error, want[tr.Task][agent])
		}
	}
	if seen != 2*len(want) {
		t.Errorf("%d results of %d", seen, 2*len(want))
	}
}
