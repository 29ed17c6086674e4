// Package harbor reads tasks in the format of the Harbor framework: a folder
// with task.toml, an instruction, an environment, tests and a solution, as of
// Harbor 0.25, schema 1.0 to 1.4.
//
// It only reads: it runs nothing, downloads nothing, opens nothing outside the
// task's folder but the dataset.toml above it, and returns host variables as names, never as values. The
// result is plain plugins/task data; no other package knows this format.
//
// It is stricter than Harbor in that unknown keys are errors (warnings with
// [task.Options].Lenient) and that a broken task is reported, not left out.
package harbor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

// Name is what an experiment calls the format.
const Name = "harbor"

// Format reads the format. The zero value is ready.
type Format struct{}

var (
	_ task.Format    = Format{}
	_ task.Cataloger = Format{}
)

// Name returns what an experiment calls the format.
func (Format) Name() string { return Name }

// fileOld is what a task of Terminal-Bench 1 has in the place of task.toml.
const fileOld = "task.yaml"

// Detect reports whether dir has a task.toml, or two other parts of a task, so
// that it also detects a task without task.toml, and one of Terminal-Bench 1.
func (Format) Detect(dir string) bool {
	if exists(dir, fileConfig) {
		return true
	}
	parts := 0
	for _, p := range []string{fileInstruction, dirEnvironment, dirTests, dirSolution, fileOld} {
		if exists(dir, p) {
			parts++
		}
	}
	return parts >= 2
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// Load reads the task in dir.
func (Format) Load(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	t, problems, err := loadTask(ctx, dir, o)
	return taskfolder.Result(dir, t, problems, err)
}

func loadTask(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	files, err := taskfolder.List(ctx, root, ".", parts...)
	if err != nil {
		return nil, nil, err
	}
	f := &folder{files}
	c, r := f.config(o)
	if r == nil {
		return nil, f.Problems, nil
	}
	b := &builder{folder: f, reader: r, config: c, dir: abs, options: o}
	t, err := b.task(ctx)
	if err != nil {
		return nil, nil, err
	}
	problems := slices.Concat(r.Problems, f.Problems, f.Contents, b.published())
	slices.SortStableFunc(problems, inOrder)
	return t, slices.Compact(problems), nil // several stages may have read the same file
}

// inOrder sorts problems by their order in the files.
func inOrder(a, b task.Problem) int {
	return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Key, b.Key))
}

// old reports whether the folder has a task of Terminal-Bench 1.
func (f *folder) old() bool {
	_, err := f.Root.Lstat(fileOld)
	return err == nil
}

// config reads task.toml. The reader is nil when there is none to read; then
// the problem is in f.
func (f *folder) config(o task.Options) (*config, *document.Reader) {
	data, err := f.read(fileConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.old():
		f.Problems = append(f.Problems, task.Problem{
			File: fileOld, Line: 1, Severity: task.Error, Summary: "Task is of Terminal-Bench 1",
			Detail: "Berth reads tasks of Harbor, which have a " + fileConfig + ": convert them with `harbor task migrate`.",
		})
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		f.bad(fileConfig, "File is missing", "A task has a %s, which may be empty.", fileConfig)
		return nil, nil
	case err != nil:
		f.unread(fileConfig, err)
		return nil, nil
	}
	r := &document.Reader{File: fileConfig, Lenient: o.Lenient, Homes: homes}
	d := &decoder{Reader: r, top: r.TOML(data), options: o}
	return d.config(), r
}
