package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/surface"
)

// gauntlet copies the example, with other texts in its files, and needs what runs it.
func gauntlet(t *testing.T, change map[string]map[string]string) string {
	t.Helper()
	tree.NeedsSandbox(t)
	testlevel.Program(t, "chromium", "chromium")
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "gauntlet"), os.DirFS(filepath.Join(tree.Root, "examples", "gauntlet"))))
	for name, texts := range change {
		text := e2etest.Read(t, dir, "gauntlet", name)
		for old, with := range texts {
			if !strings.Contains(text, old) {
				t.Fatalf("%s has no %q", name, old)
			}
			text = strings.Replace(text, old, with, 1)
		}
		e2etest.Write(t, filepath.Join(dir, "gauntlet"), map[string]string{name: text})
	}
	return dir
}

// The tasks of the example are passed by their solutions, and not by doing nothing
// or anything. One that cannot be done is passed by saying what is missing.
func TestTheGauntletExample(t *testing.T) {
	t.Parallel()
	edit := map[string]string{"[agent.oracle, agent.nop, agent.random]": "[agent.oracle, agent.nop]"}
	edit[`path   = "."`] = `path   = "."
  include = ["tc_graph_004", "tc_frad_002"]`
	cells, tasks := 2, 2
	if testlevel.All() {
		edit, cells, tasks = nil, 3, 20
	}
	dir := gauntlet(t, map[string]map[string]string{"berth.hcl": edit})
	r := berth(t, dir, "run", "gauntlet")
	r.want(t, 0)
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	if len(show.Trials) != cells*tasks {
		t.Fatalf("%d trials, want %d", len(show.Trials), cells*tasks)
	}
	left := 0
	for _, tr := range show.Trials {
		if want := tr.CellKey == "agent=oracle"; (tr.Outcome == record.Passed) != want || tr.Outcome != record.Passed && tr.Outcome != record.Failed && tr.Outcome != record.ArtifactMissing {
			t.Errorf("%s of %s: %s", tr.Task, tr.CellKey, tr.Outcome)
		}
		if tr.CellKey == "agent=oracle" && strings.HasPrefix(tr.Task, "tc_frad_") {
			left += refusals(t, tr.Attempts[0].Dir)["tiles.example"]
		}
	}
	if left < 1 {
		t.Error("no request to the host of the map was counted")
	}
}

// refusals returns how many requests of an attempt were refused, by host.
func refusals(t *testing.T, attempt string) (all map[string]int) {
	t.Helper()
	for _, l := range e2etest.Lines[surface.Line](t, attempt, record.SurfaceFile) {
		var info struct {
			Requests map[string]int `json:"refused_requests"`
		}
		if len(l.Info) > 0 {
			e2etest.Must(t, json.Unmarshal(l.Info, &info))
			all = info.Requests
		}
	}
	return all
}

// An agent edits the workflow and passes. Another one says that it has done so, and
// the export shows that it has not. Neither is told how it is judged.
func TestAScriptedGauntlet(t *testing.T) {
	t.Parallel()
	const truth = "assets/graph_ground_truth/task2.json"
	dir := gauntlet(t, map[string]map[string]string{
		"tasks/workflow.yaml":      {"there is one new node": "MARK-CONDITION there is one new node", "A node Email appears": "MARK-JUDGE A node Email appears"},
		truth:                      {`"graph"`: `"note": "MARK-TRUTH", "graph"`},
		"apps/workflow/index.html": {"<header>": `<img src="https://mark-info.example/x.png" alt=""><header>`},
	})
	berth(t, dir, "run", "gauntlet/scripted").want(t, 0)
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	for _, tr := range show.Trials {
		want := map[string]record.Outcome{"model=editor": record.Passed, "model=boaster": record.Failed}[tr.CellKey]
		if tr.Outcome != want || tr.Attempts[0].Integrity != record.Checked {
			t.Errorf("%s: %s, %s; want %s", tr.CellKey, tr.Outcome, tr.Attempts[0].Integrity, want)
		}
		attempt := tr.Attempts[0].Dir
		judged := map[string]float64{"model=editor": 4, "model=boaster": 1}[tr.CellKey]
		if scores := e2etest.Result(t, attempt).Scores; scores["judge"] != judged {
			t.Errorf("%s: scores %v, want %g from the judge", tr.CellKey, scores, judged)
		}
		for _, name := range []string{record.SurfaceFile, record.FramesDir, record.CapturesDir + "/result/page.txt"} {
			if _, err := os.Stat(filepath.Join(attempt, name)); err != nil {
				t.Errorf("%s: %v", tr.CellKey, err)
			}
		}
		if tr.CellKey == "model=editor" && refusals(t, attempt)["mark-info.example"] != 1 {
			t.Errorf("refused: %v", refusals(t, attempt))
		}
		seen := saidToTheAgent(t, attempt)
		if text := e2etest.Read(t, attempt, "steps.jsonl"); seen < 2 || strings.Contains(text, "MARK-") {
			t.Errorf("%s: %d requests and replies, and steps %.300s", tr.CellKey, seen, text)
		}
	}
	if len(show.Trials) != 2 {
		t.Errorf("%d trials", len(show.Trials))
	}
}

// The first message to the user ends the episode: a result that is right then, and made
// wrong by what follows it, passes. The agent sees no picture; the judge sees those of
// all steps, and so does the film.
func TestTheEpisodeEndsWithTheAnswer(t *testing.T) {
	t.Parallel()
	done := "send_msg_to_user('done')\\nmouse_click(91, 215)"
	dir := gauntlet(t, map[string]map[string]string{
		"scripted/berth.hcl": {
			`model = [model.editor, model.boaster]`: `model = [model.editor]
    agent = [agent.visual, agent.oracle]`,
			"  agent       = agent.visual\n": "",
			`  plugin = "visual"`: `  plugin = "visual"
  config {
    observations = ["axtree"]
    history      = "actions"
  }`,
			`verifier "visual-judge" {`: `agent "oracle" {
  plugin = "oracle"
  oracle = true
}

verifier "visual-judge" {`,
			"    judge = true": "    judge = true\n    solutions = \"solutions\"",
		},
		"scripted/editor.yaml": {"The email is connected.\\n\\n```json\\n{\\\"answer\\\": \\\"done\\\"}\\n```": "It is done.\\n\\n```\\n" + done + "\\n```"},
		"solutions/tc_graph_002/actions.jsonl": {`{"name": "mouse_click", "arguments": {"x": 521, "y": 249}}`: `{"name": "mouse_click", "arguments": {"x": 521, "y": 249}}
{"name": "send_msg_to_user", "arguments": {"text": "done"}}
{"name": "mouse_click", "arguments": {"x": 91, "y": 215}}`},
	})
	berth(t, dir, "run", "gauntlet/scripted").want(t, 0)
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	for _, tr := range show.Trials {
		attempt := tr.Attempts[0].Dir
		if scores := e2etest.Result(t, attempt).Scores; tr.Outcome != record.Passed || scores["judge"] != 4 {
			t.Errorf("%s: %s, scores %v", tr.CellKey, tr.Outcome, scores)
		}
		var last surface.Line
		pictures := map[string]bool{}
		for line := range strings.Lines(e2etest.Read(t, attempt, record.SurfaceFile)) {
			last = surface.Line{}
			e2etest.Must(t, json.Unmarshal([]byte(line), &last))
			if len(last.Frames) != 1 || last.Frames[0].Name != "screenshot" {
				t.Fatalf("%s: %s has the frames %+v", tr.CellKey, last.Kind, last.Frames)
			}
			pictures[last.Frames[0].File] = true
		}
		if last.Action != "send_msg_to_user" || !last.Done || len(pictures) < 4 {
			t.Errorf("%s: %d pictures, and the last action is %s, done %t", tr.CellKey, len(pictures), last.Action, last.Done)
		}
	}
	if len(show.Trials) != 2 {
		t.Errorf("%d trials", len(show.Trials))
	}
}

// The published lists are valid as they are, although no page of an application is
// known.
func TestThePublishedListsOfGauntlet(t *testing.T) {
	t.Parallel()
	published := filepath.Join(tree.Root, "..", "shared", "published", "gauntletbench")
	if _, err := os.Stat(published); err != nil {
		t.Skipf("published tasks are not here: %v", err)
	}
	r := berth(t, t.TempDir(), "task", "check", published)
	r.want(t, 0)
	if strings.Count(r.out, "No page is known yet") != 15 || strings.Contains(r.out, "invalid") {
		t.Errorf("%s", r.out)
	}
}

// saidToTheAgent looks for what decides in the requests and replies of the agent's
// model, and returns how many there are. The judge is told what decides.
func saidToTheAgent(t *testing.T, attempt string) (seen int) {
	t.Helper()
	for line := range strings.Lines(e2etest.Read(t, attempt, record.ExchangesFile)) {
		var x struct {
			Role    string `json:"role"`
			Request string `json:"request"`
			Reply   string `json:"reply"`
		}
		e2etest.Must(t, json.Unmarshal([]byte(line), &x))
		if x.Role != "agent" {
			continue
		}
		for _, digest := range []string{x.Request, x.Reply} {
			b, err := recording.Fetch(filepath.Join(attempt, record.ModelDir), digest)
			e2etest.Must(t, err)
			if seen++; strings.Contains(strings.ToLower(string(b)), "mark-") {
				t.Errorf("%s: what decides is in a request or a reply", attempt)
			}
		}
	}
	return seen
}
