package webui

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// run writes the folder of a run with one cell for each slug, and the files of its
// attempts.
func run(t *testing.T, slugs []string, trials []pastTrial, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	var plan strings.Builder
	plan.WriteString(`{"run":{"version":1}}` + "\n")
	for i, s := range slugs {
		fmt.Fprintf(&plan, `{"cell":{"index":%d,"key":"agent=%s","slug":%q}}`+"\n", i, s, s)
	}
	for _, r := range trials {
		line, err := json.Marshal(map[string]any{"trial": r})
		if err != nil {
			t.Fatal(err)
		}
		plan.Write(append(line, '\n'))
		file := filepath.Join(dir, runTrials, r.Dir)
		if err = os.MkdirAll(file, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{runManifest: plan.String()}
	for name, text := range files {
		all[runTrials+"/"+name] = text
	}
	for name, text := range all {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func loadWith(t *testing.T, config map[string]any) (*task.Task, []task.Problem) {
	t.Helper()
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	got, problems, err := Format{}.Load(t.Context(), folder(t, map[string]string{"actions.json": `{"actions":[{"name":"a","steps":[{"do":"wait","seconds":1}]}]}`}), task.Options{Config: raw})
	if err != nil {
		t.Fatal(err)
	}
	return got, problems
}

func given(t *testing.T, tk *task.Task) (s settings) {
	t.Helper()
	if err := json.Unmarshal(tk.Environment.Settings, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Each repetition begins with what the same repetition of the run has written, in its
// last attempt that has a score.
func TestATaskStartsFromARun(t *testing.T) {
	t.Parallel()
	const scored, failed = `{"score":0.5,"stages":[{"name":"main"}]}`, `{"outcome":"environment_error"}`
	trials := []pastTrial{{Dir: "card--a--2", Task: "card", Repetition: 2}, {Dir: "card--a--1", Task: "card", Repetition: 1}, {Dir: "card--a--3", Task: "card", Repetition: 3}, {Dir: "other--a--1", Task: "other", Repetition: 1}}
	files := map[string]string{
		"card--a--1/attempt-1/result.json": scored, "card--a--1/attempt-1/captures/result/index.html": "old", "card--a--1/attempt-2/result.json": scored,
		"card--a--1/attempt-2/captures/result/index.html": "<p>one", "card--a--1/attempt-2/captures/result/style.css": "p{}", "card--a--1/attempt-2/captures/result/elements.json": "{}",
		"card--a--1/attempt-3/result.json": failed, "card--a--2/attempt-1/result.json": scored, "card--a--2/attempt-1/captures/result/elements.json": "{}",
		"card--a--3/attempt-1/result.json": `{"score":1,"stages":[{"name":"iteration-1"},{"name":"iteration-2"}]}`, "card--a--3/attempt-1/captures/iteration-2/result/index.html": "<p>three",
	}
	tk, problems := loadWith(t, map[string]any{"start": run(t, []string{"a"}, trials, files), "iterations": 5})
	if tk == nil {
		t.Fatal(problems)
	}
	if s := given(t, tk); !slices.Equal(s.Start, []string{"start/1", "", "start/3"}) || !s.Keep {
		t.Errorf("%+v", s)
	}
	texts := map[string]string{}
	for _, r := range tk.Resources {
		for _, e := range r.Entries {
			if strings.HasPrefix(r.Name, "start/") {
				texts[r.Name+"/"+e.Path] = e.Text
				if len(r.Audience) > 0 || !slices.Contains(tk.Environment.Files, r.Name) {
					t.Errorf("%+v is for the surface alone", r)
				}
			}
		}
	}
	if want := map[string]string{"start/1/index.html": "<p>one", "start/1/style.css": "p{}", "start/3/index.html": "<p>three"}; fmt.Sprint(texts) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", texts, want)
	}
	var names []string
	for i, s := range tk.Stages {
		names = append(names, s.Name)
		if len(s.Captures) != 2 || s.Surface == nil || len(s.Surface.Observations) > 0 || len(s.Verifiers) != 1+i/4 {
			t.Errorf("stage %d: %+v", i+1, s)
		}
	}
	if got := strings.Join(names, " "); got != "iteration-1 iteration-2 iteration-3 iteration-4 iteration-5" || tk.Success.Reduce != task.ReduceLast {
		t.Errorf("%s, %+v", got, tk.Success)
	}
	files["card--a--1/attempt-2/captures/result/index.html"] = "<p>changed"
	if again, _ := loadWith(t, map[string]any{"start": run(t, []string{"a"}, trials, files)}); again == nil || again.Digest == tk.Digest {
		t.Errorf("the digest does not depend on what the agent begins with: %v", again)
	}
}

// Without iterations and a start there is one stage, and the agent is not shown again
// what it has written.
func TestAPageOfItsOwnIsNotShownAsText(t *testing.T) {
	t.Parallel()
	tk, problems := loadWith(t, nil)
	if tk == nil || len(tk.Stages) != 1 || !slices.Equal(tk.Stages[0].Surface.Observations, []string{"text", "page", "action_1"}) {
		t.Errorf("%+v, %v", tk, problems)
	}
	if s := given(t, tk); s.Keep || len(s.Start) > 0 {
		t.Errorf("%+v", s)
	}
}

func TestWhatIsNoStartIsSaid(t *testing.T) {
	t.Parallel()
	const scored = `{"score":0.5}`
	two := run(t, []string{"a", "b"}, []pastTrial{{Dir: "x", Task: "card", Repetition: 1}, {Dir: "y", Task: "card", Cell: 1, Repetition: 1}}, map[string]string{"y/attempt-1/result.json": scored, "y/attempt-1/captures/result/index.html": "<p>"})
	for _, tt := range []struct {
		config map[string]any
		want   string
	}{
		{map[string]any{"start": t.TempDir()}, "is not the folder of a run: it has no manifest.jsonl"},
		{map[string]any{"start": two}, "the run has several cells: choose one with start_cell: a, b"},
		{map[string]any{"start": two, "start_cell": "c"}, `the run has no cell "c": choose from a, b`},
		{map[string]any{"start": two, "start_cell": "a"}, "none of its attempts has a score"},
		{map[string]any{"start": run(t, []string{"a"}, []pastTrial{{Dir: "x", Task: "dog", Repetition: 1}}, nil)}, `the run has no trial of the task "card"`},
		{map[string]any{"start": run(t, []string{"a"}, []pastTrial{{Dir: "x", Task: "card", Repetition: 1}}, map[string]string{"x/attempt-1/result.json": scored})}, "attempt-1 has no page that was captured"},
		{map[string]any{"start": run(t, []string{"a"}, []pastTrial{{Dir: "../..", Task: "card", Repetition: 1}}, nil)}, "no trial of the task"},
	} {
		if tk, problems := loadWith(t, tt.config); tk != nil || !strings.Contains(fmt.Sprint(problems), tt.want) || !problems[0].Outside {
			t.Errorf("%v: %v, %v; want %q", tt.config, tk, problems, tt.want)
		}
	}
	if tk, problems := loadWith(t, map[string]any{"start": two, "start_cell": "b"}); tk == nil {
		t.Error(problems)
	}
	for config, want := range map[string]string{`{"iterations":0}`: "from 1 to 100", `{"start_cell":"a"}`: "Unused cell"} {
		if _, _, err := (Format{}).Load(t.Context(), folder(t, nil), task.Options{Config: json.RawMessage(config)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", config, err, want)
		}
	}
}
