// Package tasktest is the conformance kit of task formats: the rules that every
// format must follow, as clauses. It must not know any format.
package tasktest

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/task"
)

// Subject is a format under test with folders to load.
type Subject struct {
	Format task.Format
	// Good are folders with valid tasks, at least one. Each has an instruction,
	// a verifier and at least one folder resource with a file in it.
	Good []string
	// Broken are folders that look like tasks and are not valid ones.
	Broken []string
	// File is the path of a task in each of these folders, for a task.Finder;
	// empty when a folder is a task.
	File string
	// Edit changes the content of a file of the first good folder so that its task
	// is another one: of a file in its folder resource, or, if the format makes
	// those, of the first of its Files. Nil appends a line end.
	Edit func([]byte) []byte
	// Options are needed to load Good; usually the zero value.
	Options task.Options
}

// read loads the task in a folder.
func (s *Subject) read(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	return s.Format.Load(ctx, filepath.Join(dir, filepath.FromSlash(s.File)), o)
}

// Run runs every clause as a subtest:
//
//	tasktest.Run(t, tasktest.Subject{Format: myformat.Format{}, Good: []string{"testdata/good"}, Broken: …})
func Run(t *testing.T, s Subject) {
	t.Helper()
	conformance.Test(t, s, Clauses())
}

// Clauses returns all clauses of the kit.
func Clauses() []conformance.Clause[Subject] {
	return slices.Concat(loadClauses(), hostileClauses(), spoiledClauses())
}

// load reads a folder that must be a valid task.
func (s *Subject) load(ctx context.Context, t *conformance.T, dir string) *task.Task {
	got, problems, err := s.read(ctx, dir, s.Options)
	if err != nil {
		t.Fatalf("Load(%s): %v", dir, err)
	}
	if got == nil || task.Broken(problems) {
		t.Fatalf("Load(%s) made no task: %v", dir, problems)
	}
	return got
}

// clone copies a folder, links as links.
func clone(t *conformance.T, dir string) string {
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		return copyOne(p, filepath.Join(to, rel), e)
	})
	if err != nil {
		t.Fatalf("copy %s: %v", dir, err)
	}
	return to
}

func copyOne(from, to string, e fs.DirEntry) error {
	fi, err := e.Info()
	if err != nil {
		return err
	}
	switch {
	case e.IsDir():
		return os.Mkdir(to, fi.Mode().Perm()|0o700)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	default:
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, fi.Mode().Perm())
	}
}

// text returns the JSON of a value, for comparisons.
func text(t *conformance.T, v any) string {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatalf("JSON of %T: %v", v, err)
	}
	return string(raw)
}

// folderResource returns the first folder resource with a file in it.
func folderResource(t *conformance.T, tk *task.Task) (*task.Resource, *task.Entry) {
	for i := range tk.Resources {
		r := &tk.Resources[i]
		for j := range r.Entries {
			if e := &r.Entries[j]; !e.Folder && e.Link == "" {
				return r, e
			}
		}
	}
	t.Fatalf("task %s has no folder resource with a file in it", tk.Name)
	return nil, nil
}
