// Package gauntlet reads tasks in the layout of GauntletBench: a dataset is a
// folder with lists of tasks in tasks/*.yaml, and ground truths in assets/. Each
// task is about one of five web applications, which its id tells.
//
// It only reads: it runs nothing, downloads nothing and opens nothing outside of
// the dataset. The result is plain plugins/task data; no other package knows this
// layout.
package gauntlet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// Name is what an experiment calls the format.
const Name = "gauntlet"

// dirTasks is the folder of the lists.
const dirTasks = "tasks"

// Bounds of a dataset.
const (
	maxList  = 8 << 20 // bytes of a list
	maxTasks = 1000    // of a list
	maxLists = 1000
)

// Format reads the layout. The zero value is ready.
type Format struct{}

var (
	_ task.Finder       = Format{}
	_ task.Configurable = Format{}
)

// Config is the body of the `config` block of a dataset.
type Config struct {
	Image     string        `berth:"image" doc:"Image of the sandboxes, with Chromium in it. Absent: what the environment has."`
	Steps     int           `berth:"steps" default:"100" doc:"How many steps an agent has. The benchmark's own program allows 50 unless it is told otherwise."`
	StepsOf   string        `berth:"steps_of" default:"replies" enum:"replies,actions" doc:"What a step is. replies: a reply of the model, with all its actions, as in the benchmark. actions: one action."`
	AgentTime time.Duration `berth:"agent_time" default:"2h" doc:"Time limit of the agent. 0s: none."`
	Instruct  string        `berth:"instruction" doc:"What the agent is told: file(\"my.md\"). {{prompt}} is replaced by the prompt of the task. Absent: the prompt alone."`
	Judge     bool          `berth:"judge" default:"false" doc:"Lets the verifier visual-judge look at the pictures after the comparator. It decides nothing."`
	Solutions string        `berth:"solutions" doc:"Folder of the dataset with ID/actions.jsonl, which the agent oracle plays. The published layout has no solutions. Absent: there are none."`
	Workflow  *App          `berth:"workflow" doc:"The editor of workflows (tc_graph_)."`
	Scene     *App          `berth:"scene" doc:"The editor of 3D scenes (tc_3d_)."`
	Video     *App          `berth:"video" doc:"The video editor (tc_vid_)."`
	Circuit   *App          `berth:"circuit" doc:"The circuit simulator (tc_circuit_)."`
	Flight    *App          `berth:"flight" doc:"The map of flights (tc_frad_)."`

	Applications map[string]Application `berth:"application" doc:"Another application; the label is the middle of its tasks' ids: application \"mail\" is for tc_mail_001."`
}

// App says where an application is, and how it is used.
type App struct {
	URL          string         `berth:"url" doc:"Page that is opened. With pages it is a path in that folder. Absent: website.url of the task, or the first page."`
	Pages        string         `berth:"pages" doc:"Folder of the dataset with the pages of the application, for sandboxes without a network. Absent: the application is at url."`
	Hosts        []string       `berth:"hosts" doc:"Hosts that the browser may reach besides that of the page. [\"*\"]: the public network."`
	Capture      *Capture       `berth:"capture" doc:"How the result is taken from the application. Absent: as in the benchmark."`
	InitialDelay *time.Duration `berth:"initial_delay" doc:"Wait after the page was opened. Absent: 10 s, and 330 s for flights."`
	Prefix       string         `berth:"prefix" doc:"Text before each prompt: file(\"my.md\"), or, without spaces, the name of a file of the dataset. Absent: none."`
	Observations []string       `berth:"observations" doc:"Kinds of observation that the agent gets. Absent: screenshot, and axtree for videos and workflows."`
	Actions      []string       `berth:"actions" doc:"Actions that the agent has. Absent: all."`
}

// Application is one that the benchmark does not have.
type Application struct {
	App

	Verifier string `berth:"verifier" required:"true" doc:"Verifier that compares the result with the ground truth, such as compare-graph or compare-fields."`
	Assets   string `berth:"assets" doc:"Folder of the dataset with ground truths, ID.json. Absent: they are in the lists."`
}

// Capture says how the result is taken from an application.
type Capture struct {
	Kind   string `berth:"kind" enum:"url,script,none" required:"true" doc:"url: the text of the page at url. script: the value of script. none: only what the agent says counts."`
	URL    string `berth:"url" doc:"Page to visit. A path is one of the application's host, or of its pages."`
	Script string `berth:"script" doc:"JavaScript to evaluate in the page."`
}

// Name returns what an experiment calls the format.
func (Format) Name() string { return Name }

// Config implements task.Configurable.
func (Format) Config() any { return &Config{} }

// isList reports whether a file in the folder of lists is one.
func isList(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml"}, path.Ext(name))
}

// Detect reports whether dir has lists of tasks.
func (Format) Detect(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, dirTasks))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && isList(e.Name()) })
}

// Find returns the tasks of all lists. That of a list is LIST/ID, or LIST/entry-N
// if it has no valid id; a list that cannot be read is LIST alone.
func (Format) Find(ctx context.Context, dir string, _ task.Options) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), dirTasks)
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.IsDir() || !isList(e.Name()) })
	if len(entries) > maxLists {
		return nil, fmt.Errorf("read dataset: there are more than %d lists in %s", maxLists, dir)
	}
	var found []string
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		l := readList(root, path.Join(dirTasks, e.Name()), false)
		for i := range l.items {
			found = append(found, path.Join(l.File, l.items[i].name))
		}
		if len(l.items) == 0 {
			found = append(found, l.File)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// Files returns what a task depends on.
func (Format) Files(t *task.Task) []string {
	files := []string{t.HostPath(path.Dir(t.File))}
	for i := range t.Resources {
		files = append(files, t.HostPath(t.Resources[i].Path))
	}
	return files
}

func settings(o task.Options) (c Config, err error) {
	raw := o.Config
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if err = config.Decode(raw, &c); err != nil {
		return c, fmt.Errorf("settings of the dataset: %w", err)
	}
	var w wrongSettings
	if c.Steps < 1 || c.Steps > 1_000_000 {
		w.add("steps is %d: write a number from 1 to 1000000", c.Steps)
	}
	if c.AgentTime < 0 {
		w.add("agent_time is %s: write a duration such as \"30m\"", c.AgentTime)
	}
	w.inside("solutions", c.Solutions)
	if c.Instruct != "" && !strings.Contains(c.Instruct, promptMark) {
		w.add("instruction has no %s, so that the agent would not be told its task", promptMark)
	}
	for i := range applications {
		w.app(applications[i].name, applications[i].of(&c))
	}
	for _, label := range slices.Sorted(maps.Keys(c.Applications)) {
		own := c.Applications[label]
		w.app("application."+label, &own.App)
		w.inside("application."+label+".assets", own.Assets)
		if known, _ := (&Config{}).application(label); known != nil || !labelForm.MatchString(label) {
			w.add("application %q: its label is the middle of ids, of letters a to z and digits, and not that of an application of the benchmark", label)
		}
	}
	return c, w.err
}

// wrongSettings is what is wrong with the settings of a dataset.
type wrongSettings struct{ err error }

func (w *wrongSettings) add(format string, args ...any) {
	w.err = errors.Join(w.err, fmt.Errorf("settings of the dataset: "+format, args...))
}

func (w *wrongSettings) inside(name, p string) {
	if p != "" && (!filepath.IsLocal(p) || path.Clean(p) == ".") {
		w.add("%s is %q: write the path of a file or folder in the dataset", name, p)
	}
}

// app checks the block of an application; nil: there is none.
func (w *wrongSettings) app(name string, of *App) {
	if of == nil {
		return
	}
	w.inside(name+".pages", of.Pages)
	if of.prefixFile() {
		w.inside(name+".prefix", of.Prefix)
	}
	if of.InitialDelay != nil && (*of.InitialDelay < 0 || *of.InitialDelay > time.Hour) {
		w.add("%s.initial_delay is %s: write a duration from \"0s\" to \"1h\"", name, *of.InitialDelay)
	}
	if of.Capture != nil && (of.Capture.Kind == captureURL) != (of.Capture.URL != "") {
		w.add("%s.capture: kind \"url\" needs url, and other kinds have none", name)
	}
	if of.Capture != nil && (of.Capture.Kind == captureScript) != (of.Capture.Script != "") {
		w.add("%s.capture: kind \"script\" needs script, and other kinds have none", name)
	}
}

// promptMark is where the prompt of a task is put into an instruction.
const promptMark = "{{prompt}}"

// prefixFile reports whether the text before prompts is in a file of the dataset.
func (a *App) prefixFile() bool { return a.Prefix != "" && !strings.ContainsAny(a.Prefix, " \t\r\n") }

// Load reads a task of a list.
func (Format) Load(ctx context.Context, file string, o task.Options) (*task.Task, []task.Problem, error) {
	t, ps, err := loadTask(ctx, file, o)
	return folder.Result(file, t, ps, err)
}

func loadTask(ctx context.Context, file string, o task.Options) (*task.Task, []task.Problem, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, nil, err
	}
	name := ""
	if !isList(filepath.Base(abs)) {
		abs, name = filepath.Dir(abs), filepath.Base(abs)
	}
	dir := filepath.Dir(filepath.Dir(abs))
	if filepath.Base(filepath.Dir(abs)) != dirTasks || !isList(filepath.Base(abs)) {
		return nil, nil, fmt.Errorf("a task is %s/LIST.yaml/ID in a dataset", dirTasks)
	}
	c, err := settings(o)
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	list := path.Join(dirTasks, filepath.Base(abs))
	if _, err = root.Stat(list); err != nil {
		return nil, nil, err
	}
	l := readList(root, list, o.Lenient)
	if name == "" || task.Broken(l.Problems) {
		if !task.Broken(l.Problems) {
			l.Bad("", "Not a task", "It is a list of tasks. A task of it is %s/ID.", list)
		}
		return nil, l.Problems, nil
	}
	at := l.find(name)
	if at == nil {
		return nil, nil, fmt.Errorf("there is no task %q in %s: %w", name, list, fs.ErrNotExist)
	}
	b := &builder{list: l, item: at, root: root, settings: c, dir: dir, describe: o.Describe}
	if err = b.build(ctx); err != nil {
		return nil, nil, err
	}
	return &b.t, l.Problems, nil
}

// list is a file with tasks.
type list struct {
	document.Reader

	items   []item
	version string
}

// item is an entry of a list.
type item struct {
	name string // the id, or entry-N
	at   document.Entry
	id   string // as it is written
	more []document.Entry
}
