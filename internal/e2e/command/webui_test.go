package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

const pagesExperiment = `experiment "pages" {
  datasets    = [dataset.pages]
  environment = environment.local
  matrix {
    agent = [AGENTS]
  }
  limits {
    in_flight = 2
  }
}
dataset "pages" {
  format = "webui"
  path   = "./tasks"
}
environment "local" {
  plugin  = "local"
  surface = "webui"
  surface_config {
    settle = "50ms"
  }
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "nop" {
  plugin = "nop"
}
`

// rebuilt is a page with a button that changes its text and color.
const rebuilt = `<!doctype html><body style="margin:0">
<h1 id=title data-filter-by="text" data-evalby="text|color" style="margin:40px;width:400px;height:60px;color:rgb(10, 20, 30)">Title</h1>
<button id=go data-filter-by="has_text" data-evalby="text|background-color" style="width:200px;height:80px;background-color:rgb(10, 200, 30)" onclick="this.textContent='Gone'; this.style.backgroundColor='rgb(200, 20, 30)'">Go</button>`

const rebuiltActions = `{"actions": [{"name": "press", "steps": [{"do": "click", "selector": "#go"}]}]}`

// rebuiltTask is a task whose solution writes a page.
func rebuiltTask(files map[string]string, name, solution string) {
	line, _ := json.Marshal(map[string]any{"name": "write_html", "arguments": map[string]string{"content": solution}}) // a text never fails
	for file, text := range map[string]string{
		"index.html": rebuilt, "tasks.md": "Rebuild the page. Its button is #go.\n", "actions.json": rebuiltActions, "solution/actions.jsonl": string(line) + "\n",
	} {
		files["tasks/"+name+"/"+file] = text
	}
}

// measured is what the verifier keeps.
type measured struct {
	AES    float64 `json:"aes"`
	States []struct {
		Failed   string  `json:"failed"`
		AES      float64 `json:"aes"`
		Elements []struct {
			Target   string             `json:"target"`
			Result   string             `json:"result"`
			Geometry float64            `json:"geometry"`
			Values   map[string]float64 `json:"properties"`
		} `json:"elements"`
	} `json:"states"`
}

func needsChromium(t *testing.T) {
	t.Helper()
	tree.NeedsSandbox(t)
	testlevel.Program(t, "chromium", "chromium")
}

// rebuild runs the tasks and returns what was measured, by the names of trial and
// agent.
func rebuild(t *testing.T, files map[string]string, agents string) map[string]measured {
	t.Helper()
	needsChromium(t)
	dir := t.TempDir()
	files["berth.hcl"] = strings.Replace(pagesExperiment, "AGENTS", agents, 1)
	e2etest.Write(t, dir, files)
	r := berthWith(t, dir, nil, "run", "--json")
	attempts, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1"))
	if err != nil || len(attempts) == 0 {
		t.Fatalf("%v\n%s\n%s", err, r.out, r.stderr)
	}
	all := map[string]measured{}
	for _, attempt := range attempts {
		got := e2etest.Result(t, attempt)
		if got.Outcome != record.Scored {
			t.Fatalf("%s: %s, %s", attempt, got.Outcome, pretty(got.Error))
		}
		var m measured
		e2etest.Must(t, json.Unmarshal([]byte(e2etest.Read(t, attempt, "verifier", "aes", "aes.json")), &m))
		trial, _, _ := strings.Cut(filepath.Base(filepath.Dir(attempt)), "--1-")
		all[trial] = m
	}
	return all
}

// The page itself is 1, and an empty one 0, measured in a real browser.
func TestAPageIsRebuilt(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	rebuiltTask(files, "page", rebuilt)
	all := rebuild(t, files, "agent.oracle, agent.nop")
	same, empty := all["page--oracle"], all["page--nop"]
	if same.AES != 1 || len(same.States) != 2 || len(same.States[0].Elements) != 2 || len(same.States[1].Elements) != 1 {
		t.Errorf("the page itself: %+v", same)
	}
	if empty.AES != 0 || len(empty.States) != 2 || empty.States[1].Failed == "" {
		t.Errorf("an empty page: %+v", empty)
	}
}

// Both planners rebuild a page with a scripted model. The last prompt of the one that
// sees the page after each reply has the replies and pictures that am and om say. A
// model that talks nonsense has no number in the tables.
func TestPlannersOfPages(t *testing.T) {
	needsChromium(t)
	t.Parallel()
	dir := t.TempDir()
	for _, folder := range []string{"scripted", "tasks/prices"} {
		e2etest.Must(t, os.CopyFS(filepath.Join(dir, filepath.FromSlash(folder)), os.DirFS(filepath.Join(tree.Root, "examples", "webui", filepath.FromSlash(folder)))))
	}
	small := strings.Replace(e2etest.Read(t, dir, "scripted", "berth.hcl"), "settle = \"50ms\"", "settle = \"50ms\"\nwidth = 480\nheight = 320", 1)
	e2etest.Write(t, dir, map[string]string{"scripted/berth.hcl": small})
	berth(t, dir, "run", "scripted").want(t, 0)
	attempts := playedIn(t, dir)
	if len(attempts) != 4 {
		t.Fatalf("%d attempts, want two planners with two models", len(attempts))
	}
	for attempt, r := range attempts {
		cell := fmt.Sprint(r.Cell["agent"], " ", r.Cell["model"])
		plays := r.Cell["model"] == "player"
		if want := map[bool]float64{true: 1, false: 0}[plays]; r.Outcome != record.Scored || r.Scores["aes"] != want || (r.Labels["ife"] == "") != plays {
			t.Errorf("%s: %s, %v, labels %v, %s; want %v", cell, r.Outcome, r.Scores, r.Labels, pretty(r.Error), want)
		}
		bodies := requestsOf(t, attempt)
		if want := map[string]int{"global player": 1, "online player": 7, "global nonsense": 3, "online nonsense": 18}[cell]; len(bodies) != want {
			t.Errorf("%s: %d requests, want %d", cell, len(bodies), want)
		}
		if cell != "online player" {
			continue
		}
		last := bodies[len(bodies)-1]
		pairs, pictures := strings.Count(last, `"role":"assistant"`), strings.Count(last, "data:image/png;base64,")-1 // one is of the task
		if pairs != 4 || pictures != 2 || strings.Contains(last, "I begin with the content") || strings.Contains(last, `"aes"`) {
			t.Errorf("the last request has %d pairs and %d pictures of the page, want 4 and 2: %s", pairs, pictures, last)
		}
	}
	tablesHaveNoNumber(t, dir)
}

// improvedExperiments are a run in which a page is written once, and one that starts
// from its result. RUN is the folder of the first run.
const improvedExperiments = `experiment "EXPERIMENT" {
  datasets    = [dataset.pages]
  environment = environment.local
  agent       = agent.planner
  model       = model.player
}
dataset "pages" {
  format = "webui"
  path   = "./tasks"
  config {
    CONFIG
  }
}
environment "local" {
  plugin  = "local"
  surface = "webui"
  surface_config {
    settle = "50ms"
    width  = 480
    height = 320
  }
}
agent "planner" {
  plugin = "planner"
  config {
    mode   = "global"
    format = "blocks"
    PROMPT
  }
}
model "player" {
  provider = "script"
  script   = "./player.yaml"
}
`

// A page is improved in three iterations from the result of another run. The model
// sees the files of the iteration before, which stay if its reply cannot be read. The
// page is measured after each.
func TestAPageIsImprovedFromAnotherRun(t *testing.T) {
	needsChromium(t)
	t.Parallel()
	first, second := strings.Replace(rebuilt, "rgb(10, 20, 30)", "rgb(200, 0, 0)", 1), strings.Replace(rebuilt, "rgb(10, 20, 30)", "rgb(100, 20, 30)", 1)
	reply := func(when, page string) string {
		return fmt.Sprintf("  - when: {system: %q}\n    text: |\n      ```html\n      %s\n      ```\n", when, strings.ReplaceAll(page, "\n", "\n      "))
	}
	script := "replies:\n" + reply("plan a task", first) + reply(`FILES[^@]*rgb\(200, 0, 0\)`, second) + reply(`FILES[^@]*rgb\(100, 20, 30\)`, rebuilt) + "  - when: {last: \".\"}\n    text: I like trains.\n"
	files := map[string]string{"player.yaml": script}
	rebuiltTask(files, "page", rebuilt)
	files["global.hcl"] = strings.NewReplacer("EXPERIMENT", "global", "CONFIG", "", "PROMPT", "").Replace(improvedExperiments)
	dir := t.TempDir()
	e2etest.Write(t, dir, files)
	berth(t, dir, "run", "global.hcl").want(t, 0)
	runs := e2etest.Found(t, 1, dir, "runs", "global-*")
	e2etest.Write(t, dir, map[string]string{"online.hcl": strings.NewReplacer(
		"EXPERIMENT", "online", "CONFIG", fmt.Sprintf("start = %q\n    iterations = 3", runs[0]), "PROMPT", `prompt = "FILES\n{{files}}\n@{{actions}}{{format}}"`,
	).Replace(improvedExperiments)})
	berth(t, dir, "run", "online.hcl").want(t, 0)
	for attempt, r := range playedIn(t, dir) {
		if r.Outcome != record.Scored {
			t.Fatalf("%s: %s, %s", attempt, r.Outcome, pretty(r.Error))
		}
		if !strings.Contains(attempt, "online-") {
			if r.Scores["aes"] >= 1 || r.Scores["lost_attr"] <= 0 || r.Scores["lost_par"] != 0 {
				t.Errorf("the first run: %v", r.Scores)
			}
			continue
		}
		var series []float64
		for _, s := range r.Stages {
			series = append(series, s.Rewards["aes"])
		}
		if len(series) != 3 || series[0] >= 1 || series[1] != 1 || series[2] != 1 || *r.Score != 1 || r.Scores["aes_1"] != series[0] || r.Scores["aes_3"] != 1 || r.Labels["ife"] != "" {
			t.Errorf("the series is %v, the score %v, labels %v", series, *r.Score, r.Labels)
		}
		if bodies := requestsOf(t, attempt); len(bodies) != 5 || !strings.Contains(bodies[0], "rgb(200, 0, 0)") || strings.Contains(bodies[1], "rgb(200, 0, 0)") { // the last one is asked for three times
			t.Errorf("%d requests: %q", len(bodies), bodies)
		}
	}
}
