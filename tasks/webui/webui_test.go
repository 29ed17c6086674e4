package webui

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/task/tasktest"
	"github.com/berth-eval/berth/tasks/internal/pagetest"
)

// png is the beginning of a picture; the format does not look into it.
const png = "\x89PNG\r\n\x1a\n"

// folder writes a task. "-" as a text leaves a file out.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "card")
	all := map[string]string{
		"index.html": "<p data-filter-by=text data-evalby=color>x</p>", "tasks.md": "Rebuild it.\n\n![it](./_images/a.png)\n\nThat is all.\n",
		"_images/a.png": png, "img/logo.svg": "<svg/>",
	}
	maps.Copy(all, files)
	for name, text := range all {
		if text == "-" {
			continue
		}
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

func load(t *testing.T, files map[string]string) (*task.Task, []task.Problem) {
	t.Helper()
	got, problems, err := Format{}.Load(t.Context(), folder(t, files), task.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return got, problems
}

// steps returns the actions that the surface gets.
func steps(t *testing.T, tk *task.Task) []action {
	t.Helper()
	var s struct{ Actions []action }
	if err := json.Unmarshal(tk.Environment.Settings, &s); err != nil {
		t.Fatal(err)
	}
	return s.Actions
}

func TestConformance(t *testing.T) {
	t.Parallel()
	good := folder(t, map[string]string{"actions.py": published, "solution/actions.jsonl": "{}\n"})
	tasktest.Run(t, tasktest.Subject{Format: Format{}, Good: []string{good}, Broken: []string{folder(t, map[string]string{"actions.json": "{"})}})
}

// MageBench keeps its list beside the folder of the tasks, with paths of folders,
// some of which have Chinese names.
func TestAListNamesTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"学生统计表", "仿css-tricks的卡片抽出效果", "Light", "movie-app"} {
		if err := os.CopyFS(filepath.Join(dir, "resources", "WebUI", name), os.DirFS(folder(t, nil))); err != nil {
			t.Fatal(err)
		}
	}
	lists := map[string]string{
		"WebUI_mini.json": `["WebUI/\u5b66\u751f\u7edf\u8ba1\u8868", "WebUI/Light"]`, "lines.txt": "Light\r\n学生统计表\r\n", "more.json": `["WebUI/Light", "WebUI/Dark"]`,
	}
	for name, text := range lists {
		if err := os.WriteFile(filepath.Join(dir, "resources", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ root, names, err string }{
		{"resources/WebUI", "../WebUI_mini.json", ""},
		{"resources/WebUI", "../lines.txt", ""},
		{"resources", "WebUI_mini.json", ""},
		{"resources/WebUI", filepath.Join(dir, "resources", "WebUI_mini.json"), ""},
		{"resources/WebUI", "../more.json", `../more.json has 1 names that are not tasks of the dataset, such as "Dark"`},
		{"resources/WebUI", "../none.json", "none.json: no such file"},
	} {
		raw, err := json.Marshal(map[string]string{"names": tt.names})
		if err != nil {
			t.Fatal(err)
		}
		l, err := task.List(t.Context(), Format{}, filepath.Join(dir, tt.root), task.ListOptions{Options: task.Options{Config: raw}})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s, %s: %v; want %q", tt.root, tt.names, err, tt.err)
			}
			continue
		}
		var names []string
		for i := range l.Items {
			if l.Items[i].Task != nil {
				names = append(names, l.Items[i].Name())
			}
		}
		if err != nil || !slices.Equal(names, []string{"Light", "学生统计表"}) {
			t.Errorf("%s, %s: %q, %v, %+v", tt.root, tt.names, names, err, l.Items)
		}
	}
}

// An audit has the tasks, but not the list.
func TestAllTasksAreTakenWithoutTheList(t *testing.T) {
	t.Parallel()
	o := task.Options{All: true, Config: json.RawMessage(`{"names":"../gone.json"}`)}
	if l, err := task.List(t.Context(), Format{}, folder(t, nil), task.ListOptions{Options: o}); err != nil || len(l.Items) != 1 || l.Items[0].Task == nil {
		t.Errorf("%+v, %v", l, err)
	}
}

// The page is for the host alone: no role sees a file of it, and the agent gets no
// setting of the surface either. The pictures of the description are for everyone.
func TestThePageIsHidden(t *testing.T) {
	t.Parallel()
	tk, problems := load(t, map[string]string{"actions.py": published, "solution/actions.jsonl": "{}\n", "style.css": "p {}", "script.js": "1"})
	if tk == nil {
		t.Fatal(problems)
	}
	for _, role := range []task.Role{task.RoleAgent, task.RoleUser, task.RoleVerifier, task.RoleOracle} {
		v := tk.View(role, "main")
		var names []string
		for _, r := range v.Resources {
			names = append(names, r.Name)
		}
		want := []string{"_images/a.png"}
		if role == task.RoleOracle {
			want = append(want, "solution")
		}
		if !slices.Equal(names, want) || role != task.RoleVerifier && v.Environment.Settings != nil {
			t.Errorf("%s sees %q and %s", role, names, v.Environment.Settings)
		}
	}
	var files []string
	for _, r := range tk.Resources {
		if slices.Contains(tk.Environment.Files, r.Name) && len(r.Audience) == 0 {
			files = append(files, r.Name)
		}
	}
	if want := []string{"page/_images", "page/img", "page/index.html", "page/script.js", "page/style.css"}; !slices.Equal(files, want) {
		t.Errorf("the surface gets %q, want %q", files, want)
	}
}

func TestTheDescriptionIsTextAndPictures(t *testing.T) {
	t.Parallel()
	tk, problems := load(t, map[string]string{"tasks.md": "A\n![x](./_images/a.png)\nB ![y](_images/a.png \"title\")![z](https://x.test/b.png)\n"})
	if tk == nil {
		t.Fatal(problems)
	}
	picture := task.Part{Resource: "_images/a.png", MediaType: "image/png"}
	want := []task.Part{{Text: "A\n"}, picture, {Text: "\nB "}, picture, {Text: "![z](https://x.test/b.png)\n"}}
	if got := tk.Stages[0].Instruction; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// published is a file in the layout of the benchmark, with all forms.
const published = `
from selenium.webdriver.common.by import By
from selenium.webdriver.common.action_chains import ActionChains
import time

def fill_form(driver):
    """Fills the form."""
    driver.find_element(By.ID, 'name').send_keys('Ann' " B\x21")
    field = driver.find_element(By.NAME, "mail")
    field.clear()
    field.send_keys("a@b.test\n")  # with Enter
    time.sleep(0.5)

def drag(driver):
    empty = driver.find_elements(By.CLASS_NAME, 'empty')
    chain = ActionChains(driver)
    chain.drag_and_drop(
        driver.find_element(By.XPATH, "//div[@class='fill']"),
        empty[-1],
    ).perform()

def hover_and_click(driver):
    link = driver.find_element(By.LINK_TEXT, 'Home')
    ActionChains(driver).move_to_element(link).click().perform()
    driver.find_elements(By.TAG_NAME, "li")[2].click()

def scroll(d):
    box = d.find_element(By.CSS_SELECTOR, ".box")
    d.execute_script("""
        arguments[0].scrollTop = 100;
    """, box)
    d.execute_script("window.scrollTo(0, document.body.scrollHeight);")

def unused(driver):
    for e in driver.find_elements(By.ID, "x"):
        e.click()

actions = [
    fill_form, drag,
    hover_and_click, scroll, scroll,
]

def interact(driver, dir):
    driver.save_screenshot(f'{dir}/_images/origin.png')
`

func TestPublishedActionsAreRead(t *testing.T) {
	t.Parallel()
	tk, problems := load(t, map[string]string{"actions.py": published})
	if tk == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	link := element{By: "link", Selector: "Home"}
	scroll := []step{
		{Do: "script", Script: "\n        arguments[0].scrollTop = 100;\n    ", On: []element{{By: "css", Selector: ".box"}}},
		{Do: "script", Script: "window.scrollTo(0, document.body.scrollHeight);"},
	}
	want := []action{
		{Name: "fill_form", Steps: []step{
			{Do: "type", element: element{By: "id", Selector: "name"}, Text: "Ann B!"},
			{Do: "clear", element: element{By: "name", Selector: "mail"}},
			{Do: "type", element: element{By: "name", Selector: "mail"}, Text: "a@b.test\n"},
			{Do: "wait", Seconds: 0.5},
		}},
		{Name: "drag", Steps: []step{{Do: "drag", element: element{By: "xpath", Selector: "//div[@class='fill']"}, To: &element{By: "class", Selector: "empty", Index: -1}}}},
		{Name: "hover_and_click", Steps: []step{
			{Do: "hover", element: link},
			{Do: "click", element: link},
			{Do: "click", element: element{By: "tag", Selector: "li", Index: 2}},
		}},
		{Name: "scroll", Steps: scroll},
		{Name: "scroll", Steps: scroll},
	}
	if got := steps(t, tk); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Anything else than the known forms makes the task invalid, and the line is named.
func TestOtherPythonIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		line       int
		says       string
	}{
		{"a loop", "    for e in driver.find_elements(By.ID, 'x'):\n        e.click()", 2, `"for" is not known`},
		{"a condition", "    if True:\n        pass", 2, `"if" is not known`},
		{"another module", "    pass\n    os.system('true')", 3, `"os" is not known`},
		{"a built-in function", "    __import__('os')", 2, `"__import__"`},
		{"another method of the browser", "    driver.get('https://x.test')", 2, "driver.get is not known"},
		{"another method of an element", "    driver.find_element(By.ID, 'x').submit()", 2, ".submit is not known"},
		{"an element of an element", "    e = driver.find_element(By.ID, 'x')\n    e.find_element(By.ID, 'y').click()", 3, ".find_element is not known"},
		{"a text with code in it", "    driver.find_element(By.ID, f'{x}').click()", 2, "plain string"},
		{"a computed text", "    driver.find_element(By.ID, 'x' + 'y').click()", 2, `"+"`},
		{"another way to find", "    driver.find_element(By.PARTIAL_LINK_TEXT, 'x').click()", 2, "By.PARTIAL_LINK_TEXT"},
		{"a list without a number", "    driver.find_elements(By.ID, 'x').click()", 2, "needs a number"},
		{"a number of one element", "    driver.find_element(By.ID, 'x')[0].click()", 2, "find_elements"},
		{"another method of a chain", "    ActionChains(driver).context_click().perform()", 2, "ActionChains.context_click"},
		{"a key with a name", "    driver.find_element(By.ID, 'x').send_keys(Keys.ENTER)", 2, "Keys"},
		{"what does nothing", "    driver.find_element(By.ID, 'x')", 2, "does nothing"},
		{"a wait without end", "    time.sleep(9999)", 1, "seconds is 9999"},
		{"a string that is not closed", "    time.sleep('x)", 2, "not closed"},
		{"no statement", "", 1, "without statements"},
	} {
		tk, problems := load(t, map[string]string{"actions.py": "def f(driver):\n" + tt.body + "\n\nactions = [f]\n"})
		if tk != nil || len(problems) != 1 || problems[0].Line != tt.line || problems[0].File != "actions.py" || !strings.Contains(problems[0].String(), tt.says) {
			t.Errorf("%s: got %v; want line %d and %q", tt.name, problems, tt.line, tt.says)
		}
	}
	for text, line := range map[string]int{
		"import time\nprint(1)\nactions = []\n": 2, "actions = [g]\n": 1, "x = 1\n": 1, "actions = [\n": 2, "def f(driver): pass\nactions = [f]\n": 1,
		"actions = [] + more\n": 1, "actions = [(": 1, "def\nactions = []": 1, "": 1, strings.Repeat("(", 200): 1,
	} {
		if tk, problems := load(t, map[string]string{"actions.py": text}); tk != nil || problems[0].Line != line {
			t.Errorf("%q: %v; want line %d", text, problems, line)
		}
	}
}

func TestActionsOfOursAreRead(t *testing.T) {
	t.Parallel()
	tk, problems := load(t, map[string]string{"actions.py": "never read", "actions.json": `{"actions": [
  {"name": "open", "steps": [{"do": "click", "selector": "#menu", "index": 1}, {"do": "wait", "seconds": 0.5}]},
  {"name": "rest", "steps": [{"do": "hover", "by": "id", "selector": "a"}, {"do": "type", "selector": "input", "text": "x"},
    {"do": "drag", "selector": "#a", "to": {"selector": "#b"}}, {"do": "scroll", "y": 200}]}
]}`})
	if tk == nil {
		t.Fatal(problems)
	}
	if got := steps(t, tk); len(got) != 2 || len(got[1].Steps) != 4 || got[0].Steps[0].Index != 1 || got[1].Steps[2].To.Selector != "#b" {
		t.Errorf("got %+v", got)
	}
}

func TestWrongTasksAreRefused(t *testing.T) {
	t.Parallel()
	one := func(step string) string { return "{\"actions\": [\n{\"name\": \"a\", \"steps\": [" + step + "]}\n]}" }
	for _, tt := range []struct {
		name, file, text string
		line             int
		says             string
	}{
		{"no page", "index.html", "-", 0, "The page is missing"},
		{"an empty description", "tasks.md", " \n", 0, "The description is empty"},
		{"a picture that is missing", "tasks.md", "x\n\n![a](_images/b.png)", 3, "Picture is missing"},
		{"a picture outside", "tasks.md", "![a](../b.png)", 1, "outside of the task"},
		{"a picture of another type", "tasks.md", "![a](img/logo.svg)", 1, "unknown type"},
		{"no JSON", "actions.json", "{\"actions\": [\n{]}", 2, "Not a list of actions"},
		{"another object", "actions.json", `{"steps": []}`, 1, "Not a list of actions"},
		{"more than the object", "actions.json", `{"actions": []} 1`, 1, "Not a list of actions"},
		{"an unknown key", "actions.json", one(`{"do": "click", "selecter": "#x"}`), 2, "selecter"},
		{"an unknown step", "actions.json", one(`{"do": "jump", "selector": "#x"}`), 2, `do is "jump"`},
		{"an unknown way", "actions.json", one(`{"do": "click", "by": "sight", "selector": "#x"}`), 2, `by is "sight"`},
		{"no selector", "actions.json", one(`{"do": "click"}`), 2, "selector is required"},
		{"a drag without an end", "actions.json", one(`{"do": "drag", "selector": "#x"}`), 2, "to is required"},
		{"no text", "actions.json", one(`{"do": "type", "selector": "#x"}`), 2, "text is required"},
		{"no time", "actions.json", one(`{"do": "wait"}`), 2, "a wait takes more"},
		{"no steps", "actions.json", one(""), 2, "0 steps"},
		{"long waits", "actions.json", one(`{"do": "wait", "seconds": 20}, {"do": "wait", "seconds": 20}`), 2, "wait for too long"},
		{"many actions", "actions.json", `{"actions": [` + strings.Repeat(`{"name": "a", "steps": [{"do": "wait", "seconds": 0.1}]},`, 50) + `{"name": "a", "steps": [{"do": "wait", "seconds": 0.1}]}]}`, 1, "Too many actions"},
		{"a pointer", "img/logo.svg", "version https://git-lfs.github.com/spec/v1\n", 1, "git-LFS"},
	} {
		tk, problems := load(t, map[string]string{tt.file: tt.text})
		if tk != nil || len(problems) == 0 || problems[0].Line != tt.line || problems[0].File != tt.file || !strings.Contains(problems[0].String(), tt.says) {
			t.Errorf("%s: got %v; want line %d and %q", tt.name, problems, tt.line, tt.says)
		}
	}
}

// No text makes a reader panic, and what it accepts can be done.
func FuzzActions(f *testing.F) {
	f.Add(published, true)
	f.Add("def f(d):\n  '''x'''\\\n  d.execute_script(r'\\d',)\nactions = [f,]", true)
	f.Add(`{"actions": [{"name": "a", "steps": [{"do": "scroll", "y": 1}]}]}`, false)
	f.Fuzz(func(t *testing.T, text string, python bool) {
		b := &builder{}
		if python {
			b.readPython(text)
		} else {
			b.readJSON(text)
		}
		b.checkActions("x")
		for _, a := range b.actions {
			for _, s := range a.Steps {
				if why := s.wrong(); why != "" && !task.Broken(b.problems) {
					t.Errorf("%+v: %s", s, why)
				}
			}
		}
		for _, p := range b.problems {
			if p.Line < 1 || p.Line > 1+strings.Count(text, "\n") {
				t.Errorf("%v is on no line of the file", p)
			}
		}
	})
}

func TestThePageIsComplete(t *testing.T) {
	t.Parallel()
	words := slices.Concat(doings, ways[1:], slices.Collect(maps.Keys(bys))) // css is what a selector is without by
	pagetest.Complete(t, "webui.md", []any{&Config{}}, words...)
}
