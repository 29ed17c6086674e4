// Package webui reads tasks in which an agent rebuilds a web page: a folder with
// the page (index.html, style.css, script.js), with tasks.md, which describes it,
// and with the actions of the page, in actions.json or in actions.py of the
// published layout.
//
// It only reads: it runs nothing, and no Python either. The page itself is for the
// host alone. No role of a task sees it.
package webui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

// Name is what an experiment calls the format.
const Name = "webui"

// Names in the folder of a task.
const (
	fileHTML       = "index.html"
	fileCSS        = "style.css"
	fileJavaScript = "script.js"
	fileText       = "tasks.md"
	fileActions    = "actions.json"
	filePython     = "actions.py"
	dirSolution    = "solution"
	fileSolve      = "actions.jsonl"
)

// Names in a task.
const (
	resourcePage     = "page"      // folder of the files for the surface
	resourceSolution = "solution"  // what the oracle plays
	placeSolution    = "/solution" // never used: it is played on the surface
	captureTarget    = "target"
	captureResult    = "result"
	verifierName     = "aes"
	countsName       = "reward" // counts replies without an action
)

// Format reads the layout. The zero value is ready.
type Format struct{}

var (
	_ task.Configurable = Format{}
	_ task.Chooser      = Format{}
)

// Config is the body of the `config` block of a dataset.
type Config struct {
	Image string        `berth:"image" doc:"Image of the sandboxes, with Chromium. Absent: what the environment has."`
	Steps int           `berth:"steps" default:"50" doc:"How many actions an agent has."`
	Time  time.Duration `berth:"time" default:"1h" doc:"How long an agent may take."`
	Names string        `berth:"names" default:"" doc:"A file with the names of the tasks to take, such as \"../WebUI_mini.json\", relative to the folder of the dataset: a JSON list, or one name in each line. Names may also be paths of folders, as in MageBench's list. Empty: all tasks."`

	Iterations int    `berth:"iterations" default:"1" doc:"How often the agent works on the page. With more than 1, each time is a stage with its own session. The files stay, the page is measured after each, and the score is that of the last."`
	Start      string `berth:"start" default:"" doc:"The folder of a run, relative to the folder of the dataset. The agent begins with what was written there at the same task, in the same repetition. Empty: it begins with nothing."`
	StartCell  string `berth:"start_cell" default:"" doc:"The cell of that run, by the name that tables have. It is needed if the run has several."`
}

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	if c.Steps < 1 || c.Steps > 100_000 {
		ps = append(ps, config.Problem{Path: "steps", Summary: "Number out of range", Detail: fmt.Sprintf("Got %d. Write a number from 1 to 100000.", c.Steps)})
	}
	if c.Iterations < 1 || c.Iterations > 100 {
		ps = append(ps, config.Problem{Path: "iterations", Summary: "Number out of range", Detail: fmt.Sprintf("Got %d. Write a number from 1 to 100.", c.Iterations)})
	}
	if c.StartCell != "" && c.Start == "" {
		ps = append(ps, config.Problem{Path: "start_cell", Summary: "Unused cell", Detail: "It is a cell of the run that start names. Set start, or remove start_cell."})
	}
	if c.Time < time.Second {
		ps = append(ps, config.Problem{Path: "time", Summary: "Time is too short", Detail: fmt.Sprintf("Got %s. Write a duration such as \"30m\".", c.Time)})
	}
	return ps
}

// Name returns what an experiment calls the format.
func (Format) Name() string { return Name }

// Config implements task.Configurable.
func (Format) Config() any { return &Config{} }

// Detect reports whether dir has a page and its description.
func (Format) Detect(dir string) bool {
	for _, name := range []string{fileHTML, fileText} {
		if fi, err := os.Lstat(filepath.Join(dir, name)); err != nil || fi.IsDir() {
			return false
		}
	}
	return true
}

// Choose implements task.Chooser: it takes the tasks that the setting names lists.
func (Format) Choose(paths []string, o task.Options) (chosen []string, err error) {
	var c Config
	if ps := config.Validate(o.Config, &c); len(ps) > 0 {
		return nil, fmt.Errorf("settings of the dataset: %w", config.Problems(ps))
	}
	return taskfolder.Choose(paths, o, c.Names, "", "tasks")
}

// Load reads the task in a folder.
func (Format) Load(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	b := &builder{}
	if ps := config.Validate(o.Config, &b.config); len(ps) > 0 {
		return nil, nil, fmt.Errorf("settings of the dataset: %w", config.Problems(ps))
	}
	var err error
	if b.dir, err = filepath.Abs(dir); err == nil {
		b.root, err = os.OpenRoot(b.dir)
	}
	if err == nil {
		defer b.root.Close()
		err = b.build(ctx, cmp.Or(o.Dataset, filepath.Dir(b.dir)))
	}
	return taskfolder.Result(dir, &b.t, b.problems, err)
}

// builder makes a task of its folder.
type builder struct {
	dir      string // absolute
	root     *os.Root
	config   Config
	files    []taskfolder.Node // those that belong to the task
	actions  []action
	problems []task.Problem
	t        task.Task
}

func (b *builder) bad(file string, line int, summary, format string, args ...any) {
	b.problems = append(b.problems, task.Problem{
		File: file, Line: line, Severity: task.Error, Summary: summary, Detail: fmt.Sprintf(format, args...),
	})
}

func (b *builder) build(ctx context.Context, dataset string) error {
	digest, err := b.scan(ctx)
	if err != nil {
		return err
	}
	text, err := b.read(fileText, maxText)
	if err != nil {
		return err
	}
	if b.find(fileHTML) == nil {
		b.bad(fileHTML, 0, "The page is missing", "A task has %s, which is the page that is to be rebuilt.", fileHTML)
	}
	if err = b.readActions(); err != nil {
		return err
	}
	instruction := b.instruction(string(text))
	b.t = task.Task{
		Resources: b.t.Resources,
		Name:      filepath.Base(b.dir), Format: Name, Dir: b.dir, Digest: digest,
		Environment: task.Environment{OS: "linux", Image: b.config.Image, Network: task.Network{Mode: task.NetworkNone}},
		Mode:        task.ModeCopies,
		Success:     task.Success{Score: verifierName},
	}
	b.page()
	set := settings{Page: resourcePage, Actions: b.actions, Start: b.start(dataset), Keep: b.config.Iterations > 1}
	if b.t.Environment.Settings, err = json.Marshal(set); err != nil {
		return err
	}
	b.stages(instruction, &set)
	b.solution()
	return nil
}

// settings are what the surface gets.
type settings struct {
	Page    string   `json:"page"`
	Actions []action `json:"actions"`
	Start   []string `json:"start,omitempty"`
	Keep    bool     `json:"keep,omitempty"`
}

// stages adds one for each iteration. Outputs are counted once, in all of them. The
// agent is shown its files if they may be those of another session.
func (b *builder) stages(instruction []task.Part, set *settings) {
	on := task.Surface{Steps: b.config.Steps}
	if !set.Keep && len(set.Start) == 0 {
		on.Observations = []string{"text", "page"}
		for i := range b.actions {
			on.Observations = append(on.Observations, fmt.Sprintf("action_%d", i+1))
		}
	}
	for i := range b.config.Iterations {
		s := task.Stage{
			Name: "main", Instruction: instruction,
			Agent:     task.Phase{Time: task.Duration(b.config.Time)},
			Surface:   &on,
			Captures:  []task.Capture{{Name: captureTarget}, {Name: captureResult}},
			Verifiers: []task.VerifierUse{{Name: verifierName}},
		}
		if set.Keep {
			s.Name, s.Verifiers[0].Settings = fmt.Sprintf("iteration-%d", i+1), json.RawMessage(`{"series":true}`)
			b.t.Success.Reduce = task.ReduceLast
		}
		if i+1 == b.config.Iterations {
			s.Verifiers = append(s.Verifiers, task.VerifierUse{Name: countsName, Advisory: true, Settings: json.RawMessage(`{"reduce":"none","stages":"all"}`)})
		}
		b.t.Stages = append(b.t.Stages, s)
	}
}

// readActions reads the actions of the page: those of actions.json if it is there.
func (b *builder) readActions() error {
	name, parse := fileActions, (*builder).readJSON
	if b.find(fileActions) == nil {
		name, parse = filePython, (*builder).readPython
	}
	text, err := b.read(name, maxActionsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a page that nothing is done to
	}
	if err == nil {
		parse(b, string(text))
		b.checkActions(name)
	}
	return err
}

// page adds the files of the page, which only the host has: each file and folder
// beside the page is a resource.
func (b *builder) page() {
	for i := range b.files {
		f := &b.files[i]
		top, below, nested := strings.Cut(f.Path, "/")
		if f.Path == fileText || f.Path == fileActions || f.Path == filePython || nested && top == dirSolution {
			continue
		}
		name := resourcePage + "/" + top
		if n := len(b.t.Resources); n == 0 || b.t.Resources[n-1].Name != name {
			b.t.Resources = append(b.t.Resources, task.Resource{Name: name, Path: top, Folder: nested})
			b.t.Environment.Files = append(b.t.Environment.Files, name)
		}
		if r := &b.t.Resources[len(b.t.Resources)-1]; nested {
			r.Entries = append(r.Entries, task.Entry{Path: below, Mode: 0o644, Size: f.Size})
		}
	}
}

// solution adds what the oracle plays, if the task has it.
func (b *builder) solution() {
	f := b.find(dirSolution + "/" + fileSolve)
	if f == nil {
		return
	}
	b.t.Resources = append(b.t.Resources, task.Resource{
		Name: resourceSolution, Path: dirSolution, Audience: []task.Role{task.RoleOracle}, Place: placeSolution, Phase: task.PlaceTurn, Folder: true,
		Entries: []task.Entry{{Path: fileSolve, Mode: 0o644, Size: f.Size}},
	})
	for i := range b.t.Stages {
		b.t.Stages[i].Reference = &task.Reference{Resource: resourceSolution, Argv: []string{"cat", placeSolution + "/" + fileSolve}}
	}
}
