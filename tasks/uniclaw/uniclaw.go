// Package uniclaw reads tasks in the layout of UniClawBench: a dataset is a folder
// with tasks/CATEGORY/TASK_ID.yaml, and beside tasks the folder
// injection/CATEGORY/TASK_ID with the files of each task.
//
// It only reads: it runs nothing, downloads nothing, opens nothing outside the
// dataset, and returns host variables as names, never as values. The result is
// plain plugins/task data; no other package knows this layout.
package uniclaw

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// Name is what an experiment calls the format.
const Name = "uniclaw"

// Folders of a dataset, and the extension of a task's file.
const (
	dirTasks     = "tasks"
	dirInjection = "injection"
	extension    = ".yaml"
)

// Format reads the layout. The zero value is ready.
type Format struct{}

var (
	_ task.Finder       = Format{}
	_ task.Configurable = Format{}
)

// Config is the body of the `config` block of a dataset.
type Config struct {
	Image         string `berth:"image" doc:"Image of the sandboxes, with the agent's own programs. Absent: what the environment has."`
	JudgeImage    string `berth:"judge_image" doc:"Image of the supervisor's own sandbox, if it has one (tools = \"sandbox\" of its configuration). Absent: as image."`
	Snapshot      bool   `berth:"snapshot" doc:"Runs tasks that can do so on the copies of live sites that come with them: those with SNAPSHOT_MODE in .privacy or a task_snapshot. task_snapshot is the instruction then, and no other variable of .privacy and no pre_exec is needed."`
	BaseSkills    string `berth:"base_skills" default:"docker/base_skills" doc:"Folder of the dataset with a folder for each base skill, which tasks name without bringing it along. As a path in the dataset."`
	Solutions     string `berth:"solutions" doc:"Folder of the dataset with CATEGORY/TASK_ID/solve.sh, which the agent oracle runs, as a path in the dataset. The published layout has no solutions. Absent: there are none."`
	PublishedList bool   `berth:"published_list" doc:"Leaves out the tasks that the published results leave out: those with \"template\" in their path."`
}

// Name returns what an experiment calls the format.
func (Format) Name() string { return Name }

// Config implements task.Configurable.
func (Format) Config() any { return &Config{} }

// Detect reports whether dir has the two folders of a dataset.
func (Format) Detect(dir string) bool {
	for _, name := range []string{dirTasks, dirInjection} {
		if fi, err := os.Lstat(filepath.Join(dir, name)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

// maxTasks bounds the files of a dataset that are looked at.
const maxTasks = 100_000

// Find returns the files of the tasks.
func (Format) Find(ctx context.Context, dir string, o task.Options) ([]string, error) {
	c, err := settings(o)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	defer root.Close()
	var found []string
	err = fs.WalkDir(root.FS(), dirTasks, func(p string, e fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(path.Base(p), ".")
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case e.IsDir() && hidden:
			return fs.SkipDir
		case e.IsDir() || hidden || path.Ext(p) != extension || c.PublishedList && strings.Contains(strings.ToLower(p), "template"):
			return nil
		}
		if found = append(found, p); len(found) > maxTasks { // one elsewhere than in a category is refused by Load
			return fmt.Errorf("there are more than %d tasks in %s", maxTasks, dir)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	slices.Sort(found) // "a.b/x" comes before "a/x"
	return found, nil
}

// Files returns the file of a task, its folder of files, and what it has of other
// folders of the dataset.
func (Format) Files(t *task.Task) []string {
	own := injectionOf(t.File)
	files := []string{t.HostPath(t.File), t.HostPath(own)}
	for i := range t.Resources {
		if r := &t.Resources[i]; !strings.HasPrefix(r.Path, own+"/") {
			files = append(files, t.HostPath(r.Path))
		}
	}
	return files
}

// injectionOf returns the folder with the files of the task in a file.
func injectionOf(file string) string { return folderOf(dirInjection, file) }

// folderOf returns the folder of the task in a file, in a folder of such folders.
func folderOf(within, file string) string {
	return path.Join(within, path.Base(path.Dir(file)), strings.TrimSuffix(path.Base(file), extension))
}

func settings(o task.Options) (c Config, err error) {
	if err = config.Decode(o.Config, &c); err != nil {
		return c, fmt.Errorf("settings of the dataset: %w", err)
	}
	for key, dir := range map[string]string{"solutions": c.Solutions, "base_skills": c.BaseSkills} {
		if dir != "" && !filepath.IsLocal(dir) {
			return c, fmt.Errorf("settings of the dataset: %s is %q: write the path of a folder in the dataset", key, dir)
		}
	}
	return c, nil
}

// Load reads the task in a file.
func (Format) Load(ctx context.Context, file string, o task.Options) (*task.Task, []task.Problem, error) {
	b := &builder{Reader: document.Reader{Lenient: o.Lenient}, options: o}
	err := b.load(ctx, file)
	return folder.Result(file, &b.t, b.Problems, err)
}

func (b *builder) load(ctx context.Context, file string) error {
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	category := filepath.Dir(abs)
	b.File = path.Join(dirTasks, filepath.Base(category), filepath.Base(abs))
	b.dir = filepath.Dir(filepath.Dir(category))
	if filepath.Base(filepath.Dir(category)) != dirTasks || path.Ext(b.File) != extension {
		return fmt.Errorf("a task is a file %s/CATEGORY/TASK_ID%s", dirTasks, extension)
	}
	if b.settings, err = settings(b.options); err != nil {
		return err
	}
	if b.root, err = os.OpenRoot(b.dir); err != nil {
		return err
	}
	defer b.root.Close()
	return b.build(ctx)
}
