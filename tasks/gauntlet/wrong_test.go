package gauntlet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// wrong is a task that cannot be used.
type wrong struct {
	list  string
	file  string // of the task in the list; empty: tc_graph_001; -: the list itself
	files map[string]string
	want  []string // in what is reported
}

const (
	inline = "    gt: {answer: '{}'}\n"
	asset  = "assets/graph_ground_truth/task1.json"
)

// graph is a list with one task.
func graph(rest string) string { return "tasks:\n  - id: tc_graph_001\n    prompt: p\n" + rest }

// A ground truth that cannot be used makes its task invalid, by file and line.
func TestWrongGroundTruths(t *testing.T) {
	t.Parallel()
	reported(t, map[string]wrong{
		"truth with a trailing comma": {
			list: graph("    gt: {}\n"), files: map[string]string{asset: "{\"graph\": {\n  \"nodes\": [],\n}}"},
			want: []string{asset + ":3:1: Ground truth is not JSON. "},
		},
		"inline truth that is cut off": {
			list: graph("    gt:\n      answer: |\n        {\"graph\": [1,\n        2\n"), want: []string{"tasks/l.yaml:7: Ground truth is not JSON. Unexpected EOF."},
		},
		"a comma in the text of an answer": {list: graph("    gt: {answer: '{\"answer\": \"[1,]\"}'}\n"), want: []string{"tasks/l.yaml:4:", "The text under its key answer:"}},
		"truth that is a number":           {list: graph("    gt: {answer: 7}\n"), want: []string{"tasks/l.yaml:4:", "gt.answer must be a JSON text, got the number 7"}},
		"truth that is a JSON number":      {list: graph("    gt: {answer: '7'}\n"), want: []string{"tasks/l.yaml:4:", "It must be an object or a list."}},
		"two values":                       {list: graph("    gt: {answer: '{} {}'}\n"), want: []string{"Something follows the first value."}},
		"no truth":                         {list: graph("    gt: {}\n"), want: []string{"tasks/l.yaml:4:5: Ground truth is missing. There is no gt.answer, and no file " + asset}},
		"no gt":                            {list: graph(""), want: []string{"tasks/l.yaml:2:5: Ground truth is missing"}},
		"truth that is a folder":           {list: graph("    gt: {}\n"), files: map[string]string{asset + "/x": ""}, want: []string{"not a regular file"}},
		"a flight without an answer":       {list: "tasks:\n  - {id: tc_frad_001, prompt: p, gt: {}}\n", file: "tc_frad_001", want: []string{"tasks/l.yaml:2:34: Ground truth is missing. Write it under gt.answer"}},
		"a list of tolerances": {
			list: "tasks:\n  - {id: tc_3d_001, prompt: p, gt: {answer: '{}'}}\n", file: "tc_3d_001", files: map[string]string{"assets/3d_ground_truth/tolerance_overrides.json": "[1]"},
			want: []string{"assets/3d_ground_truth/tolerance_overrides.json:1:1: Tolerances are not an object"},
		},
		"a negative tolerance": {
			list: "tasks:\n  - {id: tc_3d_001, prompt: p, gt: {answer: '{}'}}\n", file: "tc_3d_001", files: map[string]string{"assets/3d_ground_truth/tolerance_overrides.json": `{"1": -1}`},
			want: []string{"assets/3d_ground_truth/tolerance_overrides.json: Not a tolerance. That of task 1 is -1"},
		},
		"two tolerances": {
			list: "tasks:\n  - {id: tc_3d_001, prompt: p, gt: {answer: '{}'}}\n", file: "tc_3d_001", files: map[string]string{"assets/3d_ground_truth/tolerance_overrides.json": `{"1": 1, "01": 2}`},
			want: []string{"Task is there twice"},
		},
		"a tolerance of no task": {
			list: "tasks:\n  - {id: tc_3d_001, prompt: p, gt: {answer: '{}'}}\n", file: "tc_3d_001", files: map[string]string{"assets/3d_ground_truth/tolerance_overrides.json": `{"one": 1}`},
			want: []string{`Not the number of a task: "one"`},
		},
	})
}

// What is wrong with a list or a task is reported by file and line.
func TestWrongTasks(t *testing.T) {
	t.Parallel()
	reported(t, map[string]wrong{
		"an id twice":                    {list: graph(inline) + "  - id: tc_graph_001\n", want: []string{`tasks/l.yaml:5:5: Id is used twice: "tc_graph_001" is also the id of tasks[0] in line 2.`}},
		"an unknown id":                  {list: "tasks:\n  - id: tc_chess_001\n", file: "tc_chess_001", want: []string{`tasks/l.yaml:2:5: Not an id: id is "tc_chess_001": write one of tc_graph_, tc_3d_`}},
		"an id with two digits":          {list: "tasks:\n  - id: tc_graph_01\n", file: "entry-1", want: []string{"Not an id"}},
		"no id":                          {list: "tasks:\n  - prompt: p\n", file: "entry-1", want: []string{`tasks/l.yaml:2:5: Not an id: id is ""`}},
		"an entry that is not a mapping": {list: "tasks:\n  - 7\n", file: "entry-1", want: []string{"tasks/l.yaml:2:5: Wrong type: tasks[0] must be a mapping, got the number 7"}},
		"no prompt":                      {list: "tasks:\n  - id: tc_graph_001\n" + inline, want: []string{"tasks/l.yaml:2:5: Key is missing: tasks[0].prompt is required"}},
		"a condition alone":              {list: strings.Replace(graph(inline), "prompt: p", "prompt: 'SUCCESS CONDITION: x'", 1), want: []string{"tasks/l.yaml:3:5: Prompt is empty"}},
		"an unknown key":                 {list: graph(inline + "    promt: x\n"), want: []string{`tasks/l.yaml:5:5: Unknown key: "promt" is not known here. Did you mean "prompt"?`}},
		"an unknown setting": {
			list: strings.Replace(graph(inline), "tc_graph", "tc_3d", 1) + "    eval_config: {toleranc: 1}\n", file: "tc_3d_001", want: []string{`tasks/l.yaml:5:19: Unknown key: "toleranc" is not known here. Did you mean "tolerance"?`},
		},
		"a setting of another comparator": {list: graph(inline + "    eval_config: {tolerance: 1}\n"), want: []string{"Unknown key"}},
		"no page":                         {list: "tasks:\n  - {id: tc_vid_001, prompt: p, gt: {answer: '{}'}}\n", file: "tc_vid_001", want: []string{"tasks/l.yaml:2:6: There is no page to open", "set url or pages in the block video"}},
		"a URL beside pages":              {list: "tasks:\n  - {id: tc_3d_001, prompt: p, gt: {answer: '{}'}, website: {url: 'https://x.example'}}\n", want: []string{"tasks/l.yaml:2:52: There is no page to open", "write a path of these pages"}, file: "tc_3d_001"},
		"an unknown key above":            {list: graph(inline) + "taskz: 1\n", want: []string{"tasks/l.yaml:5:1: Unknown key"}},
		"no YAML":                         {list: "tasks: [\n", file: "-", want: []string{"tasks/l.yaml:1:", "Not valid YAML"}},
		"an empty list":                   {list: "tasks: []\n", file: "-", want: []string{"tasks/l.yaml:1:1: List has no tasks"}},
		"tasks that are a text":           {list: "tasks: x\n", file: "-", want: []string{"tasks must be a list"}},
		"nothing":                         {list: "", file: "-", want: []string{"File is empty"}},
		"an anchor":                       {list: "tasks:\n  - id: tc_graph_001\n    prompt: &p p\n" + inline, want: []string{"an anchor, an alias or a tag, which are not read"}},
		"too deep":                        {list: "tasks: " + strings.Repeat("[", 5000), file: "-", want: []string{"nested too deeply"}},
		"a pointer of git-LFS": {
			list: graph(inline), files: map[string]string{"pages/a.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"},
			want: []string{"pages/a.bin:1: File is a pointer of git-LFS"},
		},
	})
}

func reported(t *testing.T, all map[string]wrong) {
	t.Helper()
	for name, tt := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"tasks/l.yaml": tt.list}
			maps.Copy(files, tt.files)
			file := "tasks/l.yaml/tc_graph_001"
			if tt.file != "" {
				file = strings.TrimSuffix("tasks/l.yaml/"+tt.file, "/-")
			}
			settings := `{"workflow": {"pages": "pages", "url": "/"}, "scene": {"pages": "pages"}, "flight": {"url": "https://x.example/"}}`
			got, problems, err := Format{}.Load(t.Context(), filepath.Join(dataset(t, files), file), options(settings))
			if got != nil || err != nil {
				t.Fatalf("%v, %v", got, err)
			}
			said := fmt.Sprintln()
			for _, p := range problems {
				said += p.String() + "\n"
			}
			for _, want := range tt.want {
				if !strings.Contains(said, want) {
					t.Errorf("no %q in:%s", want, said)
				}
			}
		})
	}
}

// Settings that cannot be meant are refused.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"tasks/l.yaml": "tasks:\n  - {id: tc_3d_001, prompt: p, gt: {answer: '{}'}}\n"})
	for _, tt := range [][2]string{
		{`{"steps": 0}`, "steps is 0"},
		{`{"agent_time": "-1s"}`, "agent_time is -1s"},
		{`{"scene": {"pages": "../x"}}`, `scene.pages is "../x": write the path of a file or folder in the dataset`},
		{`{"scene": {"pages": "."}}`, "scene.pages is"},
		{`{"solutions": "/x"}`, "solutions is"},
		{`{"scene": {"pages": "pages", "initial_delay": "2h"}}`, "scene.initial_delay is 2h0m0s"},
		{`{"scene": {"pages": "pages", "capture": {"kind": "url"}}}`, `scene.capture: kind "url" needs url`},
		{`{"scene": {"pages": "pages", "capture": {"kind": "none", "script": "x"}}}`, `scene.capture: kind "script" needs script`},
		{`{"scene": {"pages": "none"}}`, "scene.pages: there is no folder none with files in the dataset"},
		{`{"scene": {"pages": "pages", "prefix": "gone.txt"}}`, "scene.prefix: "},
		{`{"scenes": {}}`, `"scenes"`},
		{`{"instruction": "Do it."}`, "instruction has no {{prompt}}"},
		{`{"application": {"graph": {"verifier": "compare-fields"}}}`, `application "graph": its label`},
		{`{"application": {"My-App": {"verifier": "compare-fields"}}}`, `application "My-App": its label`},
		{`{"application": {"mail": {"verifier": "compare-fields", "pages": "../x"}}}`, "application.mail.pages is"},
		{`{"application": {"mail": {}}}`, "verifier"},
		{`{"steps_of": "turns"}`, "steps_of"},
	} {
		settings, want := tt[0], tt[1]
		got, ps, err := Format{}.Load(t.Context(), filepath.Join(dir, "tasks/l.yaml/tc_3d_001"), options(settings))
		if got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, %v; want %q", settings, got, ps, err, want)
		}
	}
	for _, file := range []string{"tasks/l.yaml/tc_3d_002", "tasks/gone.yaml/tc_3d_001", "pages/index.html", "tasks/l.yaml/x/y"} {
		if got, ps, err := (Format{}).Load(t.Context(), filepath.Join(dir, file), options(`{"scene": {"pages": "pages"}}`)); err == nil {
			t.Errorf("%s: %v, %v", file, got, ps)
		}
	}
}

// A setting of a comparator has its place in the list.
func TestSettingsAreLocated(t *testing.T) {
	t.Parallel()
	const file = "tasks/l.yaml/tc_mail_001"
	dir := dataset(t, map[string]string{"tasks/l.yaml": `tasks:
  - {id: tc_mail_001, prompt: p, gt: {answer: '{"a": 1}'}, eval_config: {tolerance_fields: {a: x}}}
`})
	got, ps, err := Format{}.Load(t.Context(), filepath.Join(dir, file), options(`{"application": {"mail": {"pages": "pages", "verifier": "compare-fields", "capture": {"kind": "none"}}}}`))
	if got == nil || err != nil {
		t.Fatalf("%v, %v", ps, err)
	}
	for key, want := range map[string]string{
		`stages[0].verifiers[0].settings.tolerance_fields["a"]`: "tasks/l.yaml:2:93 tasks[0].eval_config.tolerance_fields.a",
		"stages[0].verifiers[0].settings.no":                    "tasks/l.yaml:2:60 tasks[0].eval_config.no",
		"environment.settings.url":                              "tasks/l.yaml:2:6 tasks[0]",
	} {
		p := task.Located(Format{}, got, task.Problem{Key: key})
		if at := fmt.Sprintf("%s:%d:%d %s", p.File, p.Line, p.Column, p.Key); at != want {
			t.Errorf("%s is at %s, want %s", key, at, want)
		}
	}
}

// Whatever a list and a ground truth are, reading them ends, and a task that is
// made obeys the rules.
func FuzzLoad(f *testing.F) {
	f.Add("tasks:\n  - id: tc_graph_001\n    prompt: p\n    gt: {}\n", `{"graph": {}}`, `{"1": 2}`)
	f.Add("tasks:\n  - {id: tc_3d_001, prompt: 'a SUCCESS CONDITION: b', gt: {answer: '{\"answer\": \"[1]\"}'}, eval_config: {answer: {a: 1}}}\n", `{`, `{"1": 1e999}`)
	f.Add("tasks: [{id: tc_circuit_001, prompt: p, gt: {answer: <cir>}}]", "", "")
	f.Add("a: &x [*x]\ntasks: [[[1]]]\n---\n", "[1,]", "[]")
	dir := dataset(f, map[string]string{"tasks/l.yaml": "", asset: "", "assets/3d_ground_truth/tolerance_overrides.json": ""})
	f.Fuzz(func(t *testing.T, text, truth, tolerances string) {
		for name, text := range map[string]string{
			"tasks/l.yaml": text, asset: truth, "assets/3d_ground_truth/task1.json": truth, "assets/3d_ground_truth/tolerance_overrides.json": tolerances,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := options(`{"workflow": {"pages": "pages"}, "scene": {"pages": "pages"}, "circuit": {"pages": "pages"}}`)
		found, err := Format{}.Find(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found[:min(len(found), 5)] {
			got, ps, err := Format{}.Load(t.Context(), filepath.Join(dir, file), o)
			if err != nil || got == nil && len(ps) == 0 {
				t.Fatalf("%s: %v, %v", file, ps, err)
			}
			if got == nil {
				continue
			}
			for _, p := range got.Validate() {
				t.Errorf("%s: %s", file, p)
			}
		}
	})
}
