package sokoban

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/task/tasktest"
	"github.com/berth-eval/berth/tasks/internal/pagetest"
)

func dataset(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConformance(t *testing.T) {
	t.Parallel()
	broken := dataset(t, map[string]string{fileLevels: "; first\n####\n#  #\n####\n"})
	tasktest.Run(t, tasktest.Subject{
		Format: Format{}, Good: []string{"testdata/good"}, Broken: []string{broken}, File: "levels.txt/first",
		Edit: func(b []byte) []byte {
			return []byte(strings.Replace(string(b), "\n\n; second", "\n######\n\n; second", 1))
		},
		Options: task.Options{Config: json.RawMessage(`{"restart":true}`)},
	})
	unread := dataset(t, map[string]string{fileBounds: "[]"})
	tasktest.Run(t, tasktest.Subject{
		Format: Format{}, Good: []string{"testdata/published"}, Broken: []string{dataset(t, map[string]string{fileBounds: `{"1-Sokoban-small-v0": {}}`})},
		File: "upper_bound.json/1-Sokoban-small-v0",
		Edit: func(b []byte) []byte {
			return regexp.MustCompile(`"reward": [0-9.]+`).ReplaceAll(b, []byte("${0}00000001"))
		},
	})
	if found, err := (Format{}).Find(t.Context(), unread, task.Options{}); err != nil || !slices.Equal(found, []string{fileBounds}) {
		t.Errorf("a file that cannot be read: %q, %v", found, err)
	}
}

// load reads all levels of a dataset, which may have problems.
func load(t *testing.T, dir, config string) (tasks map[string]*task.Task, problems []string) {
	t.Helper()
	o := task.Options{Config: json.RawMessage(config)}
	l, err := task.List(t.Context(), Format{}, dir, task.ListOptions{Options: o})
	if err != nil {
		t.Fatal(err)
	}
	tasks = map[string]*task.Task{}
	for i := range l.Items {
		if it := &l.Items[i]; it.Task != nil {
			tasks[it.Task.Name] = it.Task
		}
		for _, p := range l.Items[i].Problems {
			problems = append(problems, p.String())
		}
	}
	return tasks, problems
}

func TestALevelIsATask(t *testing.T) {
	t.Parallel()
	tasks, problems := load(t, "testdata/good", `{"observations":["grid"],"steps":20}`)
	first, second := tasks["first"], tasks["second"]
	if len(problems) > 0 || first == nil || second == nil {
		t.Fatalf("%v, %q", tasks, problems)
	}
	st := &first.Stages[0]
	if st.Surface.Level != "######/#@$ .#/######" || st.Surface.Steps != 20 || !slices.Equal(st.Surface.Observations, []string{"grid"}) || !slices.Equal(st.Surface.Actions, []string{"Up", "Down", "Left", "Right"}) {
		t.Errorf("%+v", st.Surface)
	}
	if got := string(first.Environment.Settings); got != `{"max_steps":30,"num_boxes":0,"restart":false}` {
		t.Errorf("settings %s", got)
	}
	if got := string(st.Verifiers[0].Settings); got != `{"bound":10.8,"offset":100,"reduce":"best","scale":5}` {
		t.Errorf("verifier %s", got)
	}
	if got := first.Resources[0].Entries[0].Text; got != `{"name":"Right"}`+"\n"+`{"name":"Right"}`+"\n" {
		t.Errorf("solution %s", got)
	}
	if second.Stages[0].Reference != nil || string(second.Stages[0].Verifiers[0].Settings) != `{"reduce":"best"}` {
		t.Errorf("a level of which nothing is known: %+v", second.Stages[0])
	}
	with, _ := load(t, "testdata/good", `{"restart":true}`)
	if a := with["first"].Stages[0].Surface.Actions; !slices.Contains(a, "Restart") || strings.Contains(st.Instruction[0].Text, "Restart") {
		t.Errorf("restart: %q; without it the instruction is %s", a, st.Instruction[0].Text)
	}
}

// A rebuilt level is solved by its solution, with the reward of the file.
func TestLevelsAreRebuilt(t *testing.T) {
	t.Parallel()
	tasks, problems := load(t, "testdata/published", "")
	if len(problems) > 0 || len(tasks) != 3 {
		t.Fatalf("%d, %q", len(tasks), problems)
	}
	tk := tasks["2-Sokoban-v0"]
	if !slices.Contains(tk.Tags, "rebuilt") || tk.Category != "v0" || !strings.Contains(string(tk.Stages[0].Verifiers[0].Settings), `"labels":{"level":"rebuilt"}`) {
		t.Errorf("%+v, %s", tk.Labels, tk.Stages[0].Verifiers[0].Settings)
	}
	if mini, _ := load(t, "testdata/published", `{"names":"mini.json"}`); len(mini) != 1 || mini["2-Sokoban-v0"] == nil {
		t.Errorf("the mini set is %v", mini)
	}
}

func TestTheGridOfASolution(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, actions string
		reward        float64
		want, err     string
		boxes         int
	}{
		{"a push", "R", 10.9, "#####/#@$.#/#####", "", 1},
		{"around a corner", "rdRR", 0.9 + 10 - 0.3, "#######/#@ ####/## $ .#/#######", "", 1},
		{"two boxes, the second one behind the target of the first", "RlllddrRR", 0, "", "gives the reward 11.1", 0},
		{"a box that never moves counts", "rdRR", 11.6, "#######/#@ ####/## $ .#/#######", "", 3},
		{"a box where the way was", "rlR", 10.7, "", "walks through a box", 0},
		{"two boxes at once", "RuurrrddLL", 0, "", "more boxes than targets", 0},
		{"another reward", "R", 10.8, "", "gives the reward 10.9, and the file says 10.8", 0},
	} {
		raw, err := json.Marshal(map[string]any{"actions": strings.Split(tt.actions, ""), "steps": len(tt.actions), "reward": tt.reward})
		if err != nil {
			t.Fatal(err)
		}
		l := level{}
		err = l.rebuild(&entry{name: "x-Sokoban-v0", raw: raw})
		got := strings.Join(l.rows, "/")
		if tt.err == "" && (err != nil || got != tt.want || l.Boxes != tt.boxes) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %s, %v; want %s, %s", tt.name, got, err, tt.want, tt.err)
		}
	}
}

func TestWhatIsWrongIsSaidWithItsLine(t *testing.T) {
	t.Parallel()
	long := `["` + strings.Repeat(`r","`, 300_000) + `r"]`
	bound := func(name, text string) map[string]string {
		return map[string]string{fileBounds: fmt.Sprintf("{\n %q:\n  %s\n}\n", name, text)}
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no player":               {map[string]string{fileLevels: "; a\n####\n#  #\n####\n"}, "levels.txt:1: Not a level that can be played. it has no player"},
		"more boxes than targets": {map[string]string{fileLevels: "\n; a\n#####\n#@$$#\n# . #\n#####\n"}, "levels.txt:2: Not a level that can be played: it has more boxes than targets"},
		"open at the edge":        {map[string]string{fileLevels: "; a\n#####\n#@$.\n#####\n"}, "levels.txt:3: Not a level that can be played: it is open at the edge, in column 5"},
		"10,000 wide":             {map[string]string{fileLevels: "; a\n" + strings.Repeat("#", 10_000) + "\n"}, "levels.txt:2: Not a level that can be played: it has 1 rows, and a row of 10000 characters"},
		"another character":       {map[string]string{fileLevels: "; a\n####\n#@x#\n####\n"}, "levels.txt:3: Not a level that can be played: column 3 has \"x\""},
		"twice the same name":     {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n; a\n######\n#@$ .#\n######\n"}, "Name of a level is used twice"},
		"no level":                {map[string]string{fileLevels: "####\n"}, "There is no level in the file"},
		"a bad name":              {map[string]string{fileLevels: "; a/../b\n######\n#@$ .#\n######\n"}, "Not the name of a level"},
		"an unknown class":        {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "levels.json": `{"a": {"class": "smal-v0"}}`}, "Unknown class of level"},
		"an unknown key":          {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "levels.json": "{\n\n\"a\": {\"bond\": 1}}"}, "levels.json:3: Wrong data of a level"},
		"JSON that is cut":        {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "levels.json": "{\n\"a\": {"}, "levels.json:2: Not a JSON object"},
		"of no level":             {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "levels.json": "{\n\"b\": {}}"}, "levels.json:2: There is no level of this name"},
		"through a wall":          {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "levels.json": `{"a": {"solution": "uRR"}}`}, `move 1, "u", walks through a wall`},
		"another reward":          {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "levels.json": `{"a": {"solution": "RR", "bound": 10.9}}`}, "The solution gives 10.8, and the bound is 10.9"},
		"a solution of nothing":   {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "levels.json": `{"a": {"solution": "R"}}`}, "the 1 moves do not solve the level"},
		"another letter":          {map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "levels.json": `{"a": {"solution": "Rx"}}`}, `Move 2 is "x"`},
		"a list of 1 MB":          {bound("1-Sokoban-v0", `{"actions":`+long+`,"reward":1}`), "upper_bound.json:2: The level cannot be rebuilt: it has 300001 actions, and at most 10000 are read"},
		"no class in the name":    {bound("1-Boxes-v0", `{}`), "want ID-Sokoban-CLASS"},
		"another class":           {bound("1-Sokoban-v9", `{}`), `there is no class "v9"`},
		"another number of steps": {bound("1-Sokoban-v0", `{"actions":["R"],"steps":2,"reward":1}`), "steps is 2, and it has 1 actions"},
		"no reward":               {bound("1-Sokoban-v0", `{"actions":["R"]}`), "it has no reward"},
		"no list":                 {bound("1-Sokoban-v0", `{"actions":"R","reward":1}`), "upper_bound.json:2: The level cannot be rebuilt"},
		"an empty object":         {map[string]string{fileBounds: "{}"}, "There is no level in the file"},
		"a walk of 100 cells":     {bound("1-Sokoban-v0", `{"actions":["`+strings.Repeat(`r","`, 100)+`R"],"reward":1}`), "a level has at most 40"},
	} {
		tasks, problems := load(t, dataset(t, tt.files), "")
		if all := strings.Join(problems, "\n"); len(tasks) > 0 || !strings.Contains(strings.ReplaceAll(all, ". it", ": it"), strings.ReplaceAll(tt.want, ". it", ": it")) {
			t.Errorf("%s: %d tasks, %.500s; want %q", name, len(tasks), all, tt.want)
		}
	}
}

func TestWrongSettingsAreSaid(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{"steps":0}`:                "Number of steps is out of range",
		`{"observations":["imagw"]}`: "No such kind of observation",
	} {
		if _, err := (Format{}).Find(t.Context(), "testdata/good", task.Options{Config: json.RawMessage(config)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", config, err, want)
		}
	}
}

// A link beside the levels is not followed, and the problem names it.
func TestALinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{fileLevels: "; a\n######\n#@$ .#\n######\n", "other": "{}"})
	if err := os.Symlink("other", filepath.Join(dir, "levels.json")); err != nil {
		t.Fatal(err)
	}
	if tasks, problems := load(t, dir, ""); len(tasks) > 0 || !strings.Contains(strings.Join(problems, " "), "levels.json: Not a regular file") {
		t.Errorf("%v, %q", tasks, problems)
	}
}

func TestAListNamesLevels(t *testing.T) {
	t.Parallel()
	const level = "\n######\n#@$ .#\n######\n"
	files := map[string]string{
		fileLevels: "; a" + level + "; b" + level + "; c" + level, "lines.txt": "\ufeffc\r\na\r\n", "mini.json": `["Sokoban/c.pkl", "Sokoban/a.pkl"]`,
		"none.txt": "a\nd\ne\n", "empty.txt": "\n", "object.json": `{"a": 1}`,
	}
	dir := dataset(t, files)
	outside := filepath.Join(t.TempDir(), "Sokoban_mini.json")
	if err := os.WriteFile(outside, []byte(files["mini.json"]), 0o600); err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Format{}.Find(t.Context(), dir, task.Options{})
	if err != nil || len(all) != 3 {
		t.Fatalf("all: %q, %v", all, err)
	}
	find := func(names string) ([]string, error) {
		return Format{}.Choose(all, task.Options{Dataset: dir, Config: json.RawMessage(`{"names":"` + names + `"}`)})
	}
	for _, names := range []string{"lines.txt", "mini.json", relative, outside} {
		if found, err := find(names); err != nil || !slices.Equal(found, []string{"levels.txt/a", "levels.txt/c"}) {
			t.Errorf("%s: %q, %v", names, found, err)
		}
	}
	for names, want := range map[string]string{"none.txt": `none.txt has 2 names that are not levels of the dataset, such as "d"`, "empty.txt": "empty.txt has no names", "object.json": "object.json is not a JSON list of names"} {
		if _, err := find(names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", names, err, want)
		}
	}
}

// Whatever is in the files, loading ends, and a task that is loaded is whole.
func FuzzLoad(f *testing.F) {
	f.Add("; a\n######\n#@$ .#\n######\n", `{"a": {"bound": 10.8, "solution": "RR"}}`, `{"1-Sokoban-v0": {"actions": ["r", "R"], "steps": 2, "reward": 10.8}}`)
	f.Add("; a\n####\n#@$.\n", `{"a": {"bound": 1e999}}`, `{"1-Sokoban-v0": {"actions": ["U", "d", "D"], "reward": -1}}`)
	f.Fuzz(func(t *testing.T, text, about, bound string) {
		dir := dataset(t, map[string]string{fileLevels: text, "levels.json": about, fileBounds: bound})
		found, err := Format{}.Find(t.Context(), dir, task.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			tk, problems, err := Format{}.Load(t.Context(), filepath.Join(dir, file), task.Options{})
			if err != nil || (tk == nil) != task.Broken(problems) {
				t.Errorf("%q: %v, %v, %v", file, tk, problems, err)
			}
		}
	})
}

// Boxoban's files have numbers as names, and count their levels from 0.
func TestFilesOfBoxoban(t *testing.T) {
	t.Parallel()
	text := "; 0\n######\n#@$ .#\n######\n\n; 1\n######\n# @$.#\n######\n"
	tasks, problems := load(t, dataset(t, map[string]string{"000.txt": text, "001.txt": text, "readme.txt": "x"}), "")
	var names []string
	for n := range tasks {
		names = append(names, n)
	}
	slices.Sort(names)
	if want := []string{"000-0", "000-1", "001-0", "001-1"}; len(problems) > 0 || !reflect.DeepEqual(names, want) {
		t.Errorf("%q, %q; want %q", names, problems, want)
	}
}

// The levels that come with Berth: their solutions fit, and there are 60 of eight
// classes.
func TestTheLevelsThatShip(t *testing.T) {
	t.Parallel()
	tasks, problems := load(t, "../../examples/sokoban/levels", "")
	of := map[string]int{}
	for _, tk := range tasks {
		of[tk.Category]++
		if tk.Stages[0].Reference == nil {
			t.Errorf("%s has no solution", tk.Name)
		}
	}
	if len(problems) > 0 || len(tasks) != 60 || len(of) != 8 {
		t.Errorf("%d levels, %v, %q", len(tasks), of, problems)
	}
}

func TestThePageIsComplete(t *testing.T) {
	t.Parallel()
	if len(classNames()) != len(classes) {
		t.Errorf("%d names of %d classes", len(classNames()), len(classes))
	}
	pagetest.Complete(t, "games.md", []any{&Config{}, &about{}}, classNames()...)
}
