// Package sokoban reads levels of Sokoban: texts in the form of Boxoban, and the
// solutions of MageBench, of which levels are rebuilt.
//
// It only reads, and runs nothing. It does not know the program that plays a level:
// what it checks of a solution, it checks by the rules of the game.
package sokoban

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// Name is what an experiment calls the format.
const Name = "sokoban"

// The files of a dataset. Levels are also in files with numbers as names, as in
// Boxoban: 000.txt.
const (
	fileLevels = "levels.txt"
	fileBounds = "upper_bound.json"
)

var boxobanFile = regexp.MustCompile(`^[0-9]+\.txt$`)

// The bounds of what is read.
const (
	maxFile   = 16 << 20 // bytes of a file
	maxLevels = 100_000  // of a file
	maxMoves  = 10_000   // of a solution
	maxSide   = 40       // rows and columns of a level
)

// Format reads the layout. The zero value is ready.
type Format struct{}

var (
	_ task.Finder       = Format{}
	_ task.Chooser      = Format{}
	_ task.Configurable = Format{}
)

// Config is the body of the `config` block of a dataset.
type Config struct {
	Steps        int      `berth:"steps" default:"50" doc:"How many actions an agent has."`
	Restart      bool     `berth:"restart" default:"false" doc:"Offers the action Restart, which puts the level back to its start."`
	Observations []string `berth:"observations" doc:"Kinds of observation that the agent gets: image, tiny, grid. Absent: image."`
	Names        string   `berth:"names" default:"" doc:"A file with the names of the levels to take, such as \"../Sokoban_mini.json\", relative to the folder of the dataset: a JSON list, or one name in each line. Names may also be paths of files (.pkl), as in MageBench's list. Empty: all levels."`
}

// kinds are the observations of the surface.
var kinds = []string{"image", "tiny", "grid"}

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	if c.Steps < 1 || c.Steps > 100_000 {
		ps = append(ps, config.Problem{Path: config.Path("steps"), Summary: "Number of steps is out of range", Detail: fmt.Sprintf("Got %d. Write a number from 1 to 100000.", c.Steps)})
	}
	for i, k := range c.Observations {
		if !slices.Contains(kinds, k) {
			ps = append(ps, config.Problem{Path: config.Path("observations").Index(i), Summary: "No such kind of observation", Detail: fmt.Sprintf("Got %q. The kinds are %s.", k, strings.Join(kinds, ", "))})
		}
	}
	return ps
}

func settings(o task.Options) (c Config, err error) {
	if ps := config.Validate(o.Config, &c); len(ps) > 0 {
		return c, fmt.Errorf("settings of the dataset: %w", config.Problems(ps))
	}
	if len(c.Observations) == 0 {
		c.Observations = kinds[:1]
	}
	return c, nil
}

// Name returns what an experiment calls the format.
func (Format) Name() string { return Name }

// Config implements task.Configurable.
func (Format) Config() any { return &Config{} }

// Detect reports whether dir has a file with levels or with solutions.
func (Format) Detect(dir string) bool {
	files, err := sources(dir)
	return err == nil && len(files) > 0
}

// sources returns the names of the files that tasks are read from.
func sources(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() && isSource(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func isSource(name string) bool {
	return name == fileLevels || name == fileBounds || boxobanFile.MatchString(name)
}

// Find returns a path for each level: its file, and its name in it. A file that
// cannot be read as levels is a path itself: loading it says why.
func (Format) Find(ctx context.Context, dir string, o task.Options) (found []string, err error) {
	if _, err = settings(o); err != nil {
		return nil, err
	}
	files, err := sources(dir)
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	for _, f := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		list, problem, err := levels(dir, f)
		if err != nil || problem != nil {
			found = append(found, f)
		}
		for i := range list {
			found = append(found, path.Join(f, list[i].id))
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// Choose implements task.Chooser: it takes the levels that the setting names lists, or
// all if a file cannot be read as levels.
func (Format) Choose(paths []string, o task.Options) ([]string, error) {
	c, err := settings(o)
	if err != nil || slices.ContainsFunc(paths, func(p string) bool { return isSource(path.Base(p)) }) {
		return paths, err
	}
	return folder.Choose(paths, o, c.Names, ".pkl", "levels") // MageBench names the files of its rooms
}

// Files returns the files that a level is read from.
func (Format) Files(t *task.Task) []string {
	source, _, _ := strings.Cut(t.File, "/")
	files := []string{t.HostPath(source)}
	if about := t.HostPath(aboutOf(source)); source != fileBounds && exists(about) {
		files = append(files, about)
	}
	return files
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// aboutOf returns the file with what is known of the levels in a file.
func aboutOf(source string) string { return strings.TrimSuffix(source, path.Ext(source)) + ".json" }

// Load reads a level.
func (Format) Load(ctx context.Context, file string, o task.Options) (*task.Task, []task.Problem, error) {
	t, problems, err := loadTask(ctx, file, o)
	return folder.Result(file, t, problems, err)
}

func loadTask(ctx context.Context, file string, o task.Options) (*task.Task, []task.Problem, error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, nil, err
	}
	dir, source, id := filepath.Dir(filepath.Dir(abs)), filepath.Base(filepath.Dir(abs)), filepath.Base(abs)
	if fi, failed := os.Lstat(abs); failed == nil && !fi.IsDir() { // a file that could not be read as levels
		dir, source, id = filepath.Dir(abs), id, ""
	}
	c, err := settings(o)
	if err != nil {
		return nil, nil, err
	}
	list, problem, err := levels(dir, source)
	switch {
	case err != nil:
		return nil, nil, err
	case problem != nil:
		return nil, []task.Problem{*problem}, nil
	}
	i := slices.IndexFunc(list, func(l level) bool { return l.id == id })
	if i < 0 {
		return nil, nil, fmt.Errorf("%w: %s has no level %q", fs.ErrNotExist, source, id)
	}
	l := &list[i]
	if slices.ContainsFunc(list[:i], func(before level) bool { return before.name == l.name }) ||
		slices.ContainsFunc(list[i+1:], func(after level) bool { return after.name == l.name }) {
		l.bad(l.line, "Name of a level is used twice", fmt.Sprintf("%q: rename one of them.", l.name))
	}
	if l.check(); task.Broken(l.problems) {
		return nil, l.problems, nil
	}
	t, err := l.task(dir, source, &c)
	return t, l.problems, err
}
