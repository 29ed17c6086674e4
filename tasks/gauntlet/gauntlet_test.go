package gauntlet

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/task/tasktest"
	"github.com/berth-eval/berth/tasks/internal/pagetest"
)

const sample = "tasks/graph.yaml/tc_graph_001"

// configured is for the sample dataset.
const configured = `{"solutions": "solutions", "workflow": {"pages": "apps", "prefix": "prompts/prefix.txt", "initial_delay": "0s"},
"scene": {"url": "http://localhost:3000/edit"}, "video": {"pages": "apps", "url": "/site/"}, "circuit": {"url": "http://circuit.example/"}, "flight": {"hosts": ["*.tiles.example"]}}`

func options(text string) task.Options { return task.Options{Config: json.RawMessage(text)} }

// dataset writes a dataset with the list tasks/l.yaml, and other files.
func dataset(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"pages/index.html": "<!doctype html>"}
	maps.Copy(all, files)
	for name, text := range all {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConformance(t *testing.T) {
	t.Parallel()
	broken := dataset(t, map[string]string{"tasks/graph.yaml": "tasks:\n  - id: tc_graph_001\n"})
	tasktest.Run(t, tasktest.Subject{Format: Format{}, Good: []string{"testdata/good"}, Broken: []string{broken}, File: sample, Options: options(configured)})
}

func load(t *testing.T, dir, file string, o task.Options) *task.Task {
	t.Helper()
	got, problems, err := Format{}.Load(t.Context(), filepath.Join(dir, file), o)
	if err != nil || got == nil {
		t.Fatalf("%s: %v, %v", file, problems, err)
	}
	return got
}

// Each id has its application: a page, what is seen, what is captured, and who
// compares it with what.
func TestIdsTellTheApplication(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		sample: `workflow easy, {"end_on_message":true,"initial_delay":"0s","url":"/site/index.html"}, none [], [screenshot axtree], ` +
			`{"kind":"url","url":"/export"}, compare-graph {"prediction":"attempt/captures/result","truth":"references/truth.json"}`,
		"tasks/graph.yaml/tc_graph_002": `workflow hard, {"end_on_message":true,"initial_delay":"0s"}, none [], [screenshot axtree], {"kind":"url","url":"/export"}, ` +
			`compare-graph {"prediction":"attempt/captures/result","truth":{"graph":{"nodes":[{"id":"1","type":"delay","data":{"minutes":"MARK-TRUTH"}}],"edges":[]}}}`,
		"tasks/other.yaml/tc_3d_007": `scene medium, {"end_on_message":true,"initial_delay":"10s","url":"http://localhost:3000/edit"}, allow [localhost], [screenshot], ` +
			`{"kind":"url","url":"http://localhost:3000/export-clear"}, compare-scene {"prediction":"attempt/captures/result","tolerance":0.3,"truth":"references/truth.json"}`,
		"tasks/other.yaml/tc_vid_003": `video medium, {"end_on_message":true,"initial_delay":"10s","url":"/site/"}, none [], [screenshot axtree], {"kind":"url","url":"/finish"}, ` +
			`compare-timeline {"prediction":"attempt/captures/result","truth":"references/truth.json"}`,
		"tasks/other.yaml/tc_circuit_001": `circuit easy, {"end_on_message":true,"initial_delay":"10s","url":"http://circuit.example/"}, allow [circuit.example], [screenshot], ` +
			`{"kind":"script","script":"CircuitJS1.exportCircuit()"}, compare-circuit {"prediction":"attempt/captures/result","truth":{"answer":"\u003ccir f=\"1\"\u003e\u003cL x=\"0 0 -32 0\"/\u003e\u003cI x=\"0 0 64 0\"/\u003e\u003cM x=\"64 0 96 0\"/\u003e\u003c/cir\u003e"}}`,
		"tasks/other.yaml/tc_frad_001": `flight easy, {"end_on_message":true,"initial_delay":"5m30s","url":"https://flights.example/map"}, allow [flights.example *.tiles.example], [screenshot], ` +
			`, compare-fields {"prediction":"answer","tolerance_fields":{"altitude":50},"truth":{"altitude":36000}}`,
	} {
		got := load(t, "testdata/good", file, options(configured))
		s, e, capture := &got.Stages[0], &got.Environment, ""
		if len(s.Captures) > 0 {
			capture = string(s.Captures[0].Settings)
		}
		text := fmt.Sprintf("%s %s, %s, %s %v, %v, %s, %s %s", got.Category, got.Difficulty, e.Settings, e.Network.Mode, e.Network.Allow,
			s.Surface.Observations, capture, s.Verifiers[0].Name, s.Verifiers[0].Settings)
		if text != want {
			t.Errorf("%s:\n%s\nwant\n%s", file, text, want)
		}
		if got.Name != filepath.Base(file) || got.File != file || s.Surface.Steps != 100 || s.Surface.StepsOf != task.StepsOfReplies || len(s.Verifiers) != 1 || got.Success.Score != "success" || got.Mode != task.ModeCopies || s.Agent.Time.Std() != 2*time.Hour {
			t.Errorf("%s: %+v", file, got)
		}
	}
}

// The agent sees the prompt alone. The success condition, the ground truth and what
// the judge knows are for verifiers.
func TestWhatEachRoleSees(t *testing.T) {
	t.Parallel()
	for _, file := range []string{sample, "tasks/graph.yaml/tc_graph_002", "tasks/other.yaml/tc_frad_001"} {
		got := load(t, "testdata/good", file, options(strings.Replace(configured, "{", `{"judge": true, `, 1)))
		for _, role := range []task.Role{task.RoleAgent, task.RoleUser, task.RoleOracle} {
			raw, err := json.Marshal(got.View(role, "main"))
			if err != nil || strings.Contains(string(raw), "MARK-") {
				t.Errorf("%s sees %s, %v", role, raw, err)
			}
			for _, r := range got.View(role, "main").Resources {
				if r.Name == truthFile {
					t.Errorf("%s sees the ground truth", role)
				}
			}
		}
	}
	got := load(t, "testdata/good", sample, options(strings.Replace(configured, "{", `{"judge": true, `, 1)))
	raw, err := json.Marshal(got.View(task.RoleVerifier, "main"))
	if err != nil || !strings.Contains(string(raw), "MARK-CONDITION") || !strings.Contains(string(raw), "MARK-JUDGE") {
		t.Errorf("verifiers see %s, %v", raw, err)
	}
	last := got.Stages[0].Verifiers[1]
	if last.Name != "visual-judge" || string(last.Settings) != `{"instruction":"Set the delay to 5 minutes.","llm_judge_gt":"MARK-JUDGE The delay is short.","success_condition":"MARK-CONDITION the delay is 5 minutes."}` {
		t.Errorf("%s %s", last.Name, last.Settings)
	}
	if text := got.Stages[0].Instruction[0].Text; text != "You see a web application.\n\nSet the delay to 5 minutes.\n" {
		t.Errorf("instruction %q", text)
	}
}

func TestPromptsAreSplit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"Do it.\n":                           {"Do it.", ""},
		"Do it.\nSUCCESS CONDITION: done.\n": {"Do it.", "done."},
		"Do it.\n\n## Success Condition:\n- done\n- well\n":                     {"Do it.", "- done\n- well"},
		"Do it. **SUCCESS CONDITION:** done":                                    {"Do it.", "done"},
		"Do it.\nSUCCESS CONDITIONS : a\n\nRESULT FORMAT:\n{\"x\": 1}\nSUCCESS": {"Do it.\n\nRESULT FORMAT:\n{\"x\": 1}\nSUCCESS", "a"},
		"RESULT FORMAT: {}\nSUCCESS CONDITION: a SUCCESS CONDITION: b":          {"RESULT FORMAT: {}", "a SUCCESS CONDITION: b"},
		"Do it.\nSUCCESS CONDITION: a\nRESULT FORMAT: {}\nSUCCESS CONDITION: b": {"Do it.\n\nRESULT FORMAT: {}", "a\nb"},
		"SUCCESS CONDITION: only":                                               {"", "only"},
		"Say which success conditions hold.":                                    {"Say which success conditions hold.", ""},
	} {
		if p := split(text); p.text != want[0] || p.condition != want[1] {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// What a task needs of the agent besides its result is compared, too.
func TestAnAnswerBesidesTheExport(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"tasks/l.yaml": `tasks:
  - {id: tc_3d_001, prompt: p, gt: {answer: '{"scene": {}}'}, eval_config: {tolerance: 1, answer: {infeasible: torus}}}
`})
	got := load(t, dir, "tasks/l.yaml/tc_3d_001", options(`{"scene": {"pages": "pages"}, "image": "browser:1", "steps": 50, "agent_time": "0s"}`))
	v := got.Stages[0].Verifiers
	if len(v) != 2 || v[1].Name != "compare-fields" || string(v[1].Settings) != `{"prediction":"answer","truth":{"infeasible":"torus"}}` {
		t.Errorf("%+v", v)
	}
	if got.Environment.Image != "browser:1" || got.Stages[0].Surface.Steps != 50 || got.Stages[0].Agent.Time != 0 {
		t.Errorf("%+v", got)
	}
}

// A solution is the oracle's alone.
func TestSolutions(t *testing.T) {
	t.Parallel()
	got, without := load(t, "testdata/good", sample, options(configured)), load(t, "testdata/good", "tasks/graph.yaml/tc_graph_002", options(configured))
	if without.Stages[0].Reference != nil || got.Stages[0].Reference == nil {
		t.Fatalf("%+v, %+v", got.Stages[0].Reference, without.Stages[0].Reference)
	}
	raw, err := json.Marshal(got.View(task.RoleAgent, "main"))
	if err != nil || strings.Contains(string(raw), "actions.jsonl") {
		t.Errorf("the agent sees %s, %v", raw, err)
	}
	var names []string
	for _, f := range (Format{}).Files(got) {
		rel, err := filepath.Rel(got.Dir, f)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, rel)
	}
	if want := []string{"apps", "assets/graph_ground_truth/task1.json", "prompts/prefix.txt", "solutions/tc_graph_001", "tasks/graph.yaml"}; !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("the task depends on %q", names)
	}
}

// The digest of a task follows what it says and its files, and not other tasks.
func TestDigests(t *testing.T) {
	t.Parallel()
	const two = "tasks:\n  - {id: tc_3d_001, prompt: p, gt: {}}\n  - {id: tc_3d_002, prompt: q, gt: {answer: '{}'}}\n"
	first := map[string]string{"tasks/l.yaml": two, "assets/3d_ground_truth/task1.json": `{"a": 1}`, "assets/3d_ground_truth/tolerance_overrides.json": `{"1": 0.2}`, "prefix": "x"}
	const settings = `{"scene": {"pages": "pages", "prefix": "prefix"}}`
	digest := func(change map[string]string) string {
		t.Helper()
		files := maps.Clone(first)
		maps.Copy(files, change)
		return load(t, dataset(t, files), "tasks/l.yaml/tc_3d_001", options(settings)).Digest
	}
	was := digest(nil)
	for name, same := range map[string]bool{"tasks/l.yaml": true, "assets/3d_ground_truth/task1.json": false, "pages/index.html": false, "prefix": false, "assets/3d_ground_truth/tolerance_overrides.json": false} {
		change := map[string]string{name: strings.Replace(first[name], "q", "other", 1) + "\n"}
		if strings.HasSuffix(name, "overrides.json") {
			change[name] = `{"1": 0.25}`
		}
		if got := digest(change); (got == was) != same {
			t.Errorf("with another %s the digest is %s, was %s", name, got, was)
		}
	}
	if digest(map[string]string{"tasks/l.yaml": strings.Replace(two, "prompt: p", "prompt: other", 1)}) == was {
		t.Error("another prompt, and the digest is the same")
	}
}

// Lists are found by the tasks in them, also those that are not valid.
func TestADatasetIsListed(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{
		"tasks/a.yaml":   "tasks:\n  - {id: tc_3d_001, prompt: p, gt: {answer: '{}'}}\n  - {id: tc_3d_002}\n  - {prompt: x}\n  - {id: tc_3d_001}\n",
		"tasks/b.yml":    "tasks: [\n",
		"tasks/c.yaml":   "tasks:\n  - {id: tc_3d_003, prompt: p, gt: {answer: '{}'}}\n  - {id: tc_3d_004, prompt: p, gt: {answer: '{}'}}\n",
		"tasks/.d.yaml":  "x",
		"tasks/e.json":   "x",
		"tasks/f/g.yaml": "x",
	})
	list := func(o task.ListOptions) (names []string, items []task.Item) {
		t.Helper()
		o.Options = options(`{"scene": {"pages": "pages"}}`)
		l, err := task.List(t.Context(), Format{}, dir, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Items {
			names = append(names, l.Items[i].Name())
			if (l.Items[i].Task == nil) != task.Broken(l.Items[i].Problems) {
				t.Errorf("%+v", l.Items[i])
			}
		}
		return names, l.Items
	}
	names, items := list(task.ListOptions{})
	if !slices.Equal(names, []string{"entry-3", "tc_3d_001", "tc_3d_002", "b", "tc_3d_003", "tc_3d_004"}) || items[1].Task != nil || items[4].Task == nil {
		t.Errorf("%q: %+v", names, items)
	}
	if names, _ = list(task.ListOptions{Include: []string{"tasks/c.yaml"}, Exclude: []string{"tc_3d_004"}}); !slices.Equal(names, []string{"tc_3d_003"}) {
		t.Errorf("selected %q", names)
	}
	again, _, err := task.Reload(t.Context(), Format{}, items[4].Task, options(`{"scene": {"pages": "pages"}}`))
	if err != nil || again.Digest != items[4].Task.Digest {
		t.Errorf("%v, %v", again, err)
	}
	if (Format{}).Detect(filepath.Join(dir, "tasks")) || !(Format{}).Detect(dir) {
		t.Error("the dataset is not detected, or its folder of lists is")
	}
}

// What comes before a prompt, and around it, may be a text of the experiment. It is
// part of the digest.
func TestTextsOfTheExperiment(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"tasks/l.yaml": "tasks:\n  - {id: tc_3d_001, prompt: 'Do {{prompt}} it.', gt: {answer: '{}'}}\n", "before.md": "FILE"})
	seen := map[string]bool{}
	for settings, want := range map[string]string{
		`{"scene": {"pages": "pages"}}`:                                                                 "Do {{prompt}} it.\n",
		`{"scene": {"pages": "pages", "prefix": "An application.\n"}}`:                                  "An application.\n\nDo {{prompt}} it.\n",
		`{"scene": {"pages": "pages", "prefix": "before.md"}}`:                                          "FILE\n\nDo {{prompt}} it.\n",
		`{"scene": {"pages": "pages", "prefix": "A b."}, "instruction": "<{{prompt}}>\n\n"}`:            "A b.\n\n<Do {{prompt}} it.>\n",
		`{"scene": {"pages": "pages"}, "instruction": "Work well.\n{{prompt}}\nSay {{prompt}} again."}`: "Work well.\nDo {{prompt}} it.\nSay Do {{prompt}} it. again.\n",
	} {
		got := load(t, dir, "tasks/l.yaml/tc_3d_001", options(settings))
		if text := got.Stages[0].Instruction[0].Text; text != want {
			t.Errorf("%s: %q, want %q", settings, text, want)
		}
		if seen[got.Digest] {
			t.Errorf("%s: the digest does not differ", settings)
		}
		seen[got.Digest] = true
	}
}

// An application that the benchmark does not have is one block of the experiment. Its
// tasks are compared as the block says.
func TestASixthApplication(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{
		"tasks/mail.yaml": `tasks:
  - {id: tc_mail_001, prompt: p, gt: {answer: '{"sent": 1}'}, eval_config: {tolerance_fields: {sent: 1}}}
  - {id: tc_mail_002, prompt: p, gt: {}}
  - {id: tc_board_001, prompt: p, gt: {answer: '{"a": 1}'}, eval_config: {strict: true, answer: {b: 2}}}
  - {id: tc_chess_001, prompt: p, gt: {answer: '{}'}}
`,
		"assets/mail/tc_mail_002.json": `{"sent": 2}`,
	})
	o := options(`{"application": {
		"mail": {"pages": "pages", "verifier": "compare-fields", "assets": "assets/mail", "capture": {"kind": "script", "script": "state"}, "observations": ["axtree"]},
		"board": {"url": "https://board.example/", "verifier": "compare-board"}}}`)
	for file, want := range map[string]string{
		"tc_mail_001":  `mail none, [axtree], {"kind":"script","script":"state"}, compare-fields {"prediction":"attempt/captures/result","tolerance_fields":{"sent":1},"truth":{"sent":1}}`,
		"tc_mail_002":  `mail none, [axtree], {"kind":"script","script":"state"}, compare-fields {"prediction":"attempt/captures/result","truth":"references/truth.json"}`,
		"tc_board_001": `board allow, [screenshot], , compare-board {"prediction":"answer","strict":true,"truth":{"a":1}}, compare-fields {"prediction":"answer","truth":{"b":2}}`,
	} {
		got := load(t, dir, "tasks/mail.yaml/"+file, o)
		s, capture := &got.Stages[0], ""
		if len(s.Captures) > 0 {
			capture = string(s.Captures[0].Settings)
		}
		text := fmt.Sprintf("%s %s, %s, %s", got.Category, got.Environment.Network.Mode, s.Surface.Observations, capture)
		for _, v := range s.Verifiers {
			text += fmt.Sprintf(", %s %s", v.Name, v.Settings)
		}
		if text != want {
			t.Errorf("%s:\n%s\nwant\n%s", file, text, want)
		}
	}
	got, ps, err := Format{}.Load(t.Context(), filepath.Join(dir, "tasks/mail.yaml/tc_chess_001"), o)
	if got != nil || err != nil || len(ps) != 1 || !strings.Contains(ps[0].String(), `tasks/mail.yaml:5:6: Not an id: id is "tc_chess_001"`) || !strings.Contains(ps[0].Detail, "block application") {
		t.Errorf("%v, %v, %v", got, ps, err)
	}
}

// A circuit that is measured is not compared: what the agent says is.
func TestMeasuredCircuits(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"tasks/l.yaml": `tasks:
  - {id: tc_circuit_001, prompt: p, gt: {answer: '{"answer": "<cir f=\"1\"/>"}'}}
  - {id: tc_circuit_002, prompt: p, gt: {answer: '{"voltage": "2.6 V"}'}}
  - {id: tc_circuit_003, prompt: p, gt: {answer: '{"answer": "{\"voltage\": 3}"}'}}
  - {id: tc_circuit_004, prompt: p, gt: {answer: '<cir/>'}}
`})
	for id, want := range map[string]string{"001": "attempt/captures/result", "002": "answer", "003": "answer", "004": "attempt/captures/result"} {
		got := load(t, dir, "tasks/l.yaml/tc_circuit_"+id, options(`{"circuit": {"pages": "pages"}}`))
		if v := got.Stages[0].Verifiers[0]; !strings.Contains(string(v.Settings), `"prediction":"`+want+`"`) {
			t.Errorf("%s: %s", id, v.Settings)
		}
	}
}

// A comma before a closing bracket of a ground truth is read over, and noted with its
// place. Texts keep theirs.
func TestACommaTooMany(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"tasks/l.yaml": "tasks:\n  - id: tc_frad_001\n    prompt: p\n    gt:\n      answer: |\n        {\"a\": [1, \",}\\\",]\" , ],\n        }\n"})
	got, ps, err := Format{}.Load(t.Context(), filepath.Join(dir, "tasks/l.yaml/tc_frad_001"), options(`{"flight": {"pages": "pages"}}`))
	if got == nil || err != nil || len(ps) != 1 || ps[0].Severity != task.Warning || ps[0].Line != 6 || !strings.Contains(ps[0].String(), "comma too many") {
		t.Fatalf("%v, %v, %v", got, ps, err)
	}
	if v := got.Stages[0].Verifiers[0].Settings; !strings.Contains(string(v), `"truth":{"a":[1,",}\",]"]}`) {
		t.Errorf("%s", v)
	}
}

// Lists of another machine: lines end with CRLF, names are Chinese, and a file that
// was not downloaded is named.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
	dir := dataset(t, map[string]string{
		"tasks/任务.yaml":      "tasks:\r\n  - id: tc_graph_001\r\n    prompt: 做\r\n    gt: {}\r\n  - id: tc_3d_001\r\n    prompt: p\r\n    gt: {answer: '{}'}\r\n",
		"tasks/large.yaml":   "tasks:\n  - {id: tc_3d_002, prompt: '" + strings.Repeat("p", 5<<20) + "', gt: {answer: '{}'}}\n",
		"tasks/pointer.yaml": pointer, asset: pointer,
	})
	l, err := task.List(t.Context(), Format{}, dir, task.ListOptions{Options: options(`{"workflow": {"pages": "pages"}, "scene": {"pages": "pages"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for i := range l.Items {
		said += fmt.Sprintln(l.Items[i].Name(), l.Items[i].Task != nil)
		for _, p := range l.Items[i].Problems {
			said += p.String() + "\n"
		}
	}
	for _, want := range []string{"tc_3d_001 true", "tc_3d_002 true", "tc_graph_001 false", "pointer false", asset + " is a pointer of git-LFS", "tasks/pointer.yaml:1: File cannot be read. It is a pointer of git-LFS", "tasks/任务.yaml:4:"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}

func TestThePagesAreComplete(t *testing.T) {
	t.Parallel()
	words := []string{"id", "prompt", "difficulty_level", "gt.answer", "website.url", "eval_config", "eval_config.answer", "llm_judge_gt", tolerancesFile}
	for _, a := range applications {
		words = append(words, "tc_"+a.ids+"_", a.capture.URL+a.capture.Script)
		pagetest.Complete(t, "reference/compare.md", nil, a.settings...)
	}
	pagetest.Complete(t, "gauntlet.md", []any{&Config{}}, words...)
}
