// Package tasktest is the conformance kit of task formats: the rules that every
// format must follow, as clauses. It must not know any format.
package tasktest

import (
	"encoding/json"
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
func (s *Subject) read(t *conformance.T, dir string) (*task.Task, []task.Problem, error) {
	return s.Format.Load(t.Context(), filepath.Join(dir, filepath.FromSlash(s.File)), s.Options)
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
	return slices.Concat(loadClauses, hostileClauses, spoiledClauses)
}

// load reads a folder that must be a valid task.
func (s *Subject) load(t *conformance.T, dir string) *task.Task {
	got, problems, err := s.read(t, dir)
	t.Must("load "+dir, err)
	if got == nil || task.Broken(problems) {
		t.Fatalf("Load(%s) made no task: %v", dir, problems)
	}
	return got
}

// text returns the JSON of a value, for comparisons.
func text(t *conformance.T, v any) string {
	raw, err := json.Marshal(v)
	t.Must("JSON", err)
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
