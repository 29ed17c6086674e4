// Package views makes everything that leaves the task's folder: for each role
// the one folder of files that it may see, the archives of the files for a
// sandbox, and the folders that an attempt needs only while it runs. The task's
// data says who may see what; this package only follows it.
//
// It must not decide who sees a file, must not read files that no resource
// names, and follows no link out of the task's folder.
package views

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// Names of the files and folders in every view.
const (
	TaskFile        = "task.json"
	InstructionFile = "instruction.md"
	AttemptFolder   = "attempt"
)

// Build makes the view of a role in a stage as the new folder dir: task.json,
// instruction.md and the resources for the role under their names. Attempt adds
// what the attempt itself made.
func Build(dir string, t *task.Task, role task.Role, stage string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("view of %s: %w", role, err)
		}
	}()
	s := t.Stage(stage)
	if s == nil {
		return fmt.Errorf("task %s has no stage %q", t.Name, stage)
	}
	if err = os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	seen := t.View(role, stage)
	b, err := json.MarshalIndent(seen, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, TaskFile), append(b, '\n'), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, InstructionFile), []byte(Instruction(s)), 0o600)
	}
	if err != nil {
		return err
	}
	return writeAll(dir, t, seen.Resources)
}

// writeAll writes resources into a folder, under their names.
func writeAll(dir string, t *task.Task, resources []task.Resource) error {
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for i := range resources {
		r := &resources[i]
		if !filepath.IsLocal(filepath.FromSlash(r.Name)) {
			return fmt.Errorf("resource name %q is not a path below the view", r.Name)
		}
		if err = write(t, r, root, dir); err != nil {
			return err
		}
	}
	return nil
}

// Instruction returns the text of a stage's instruction, with the name of each
// picture in the view in its place.
func Instruction(s *task.Stage) string {
	var parts []string
	for _, p := range s.Instruction {
		if p.Resource != "" {
			p.Text = "(" + p.Resource + ")"
		}
		parts = append(parts, p.Text)
	}
	return strings.Join(parts, "\n")
}

// Files returns the names, in the view, of the files of a multimodal
// instruction.
func Files(s *task.Stage) []string {
	var names []string
	for _, p := range s.Instruction {
		if p.Resource != "" {
			names = append(names, p.Resource)
		}
	}
	return names
}

// Resources writes the named resources, for any audience, into the folder dir.
// This is for plugins on the host, never for a role.
func Resources(dir string, t *task.Task, names []string) error {
	return writeAll(dir, t, slices.DeleteFunc(slices.Clone(t.Resources), func(r task.Resource) bool { return !slices.Contains(names, r.Name) }))
}

// Folders are the two working folders of an attempt.
type Folders struct {
	Runtime string // node-local, perhaps in memory
	Disk    string // on a disk, created when it is needed; empty: Runtime is on a disk, or there is no other
}

// Make makes dir, which may exist, accessible only to this user.
func Make(dir string) error { return os.MkdirAll(dir, 0o700) }

// Make makes a folder of the attempt, on the disk.
func (f Folders) Make(name string) (string, error) {
	dir := f.path(name)
	return dir, Make(dir)
}

func (f Folders) path(name string) string {
	if f.Disk == "" {
		return filepath.Join(f.Runtime, name)
	}
	return filepath.Join(f.Disk, name)
}

// View makes a view with build, which makes its folder. It removes a view that fails,
// because the disk may be full.
func (f Folders) View(name string, build func(dir string) error) (string, error) {
	dir := f.path(name)
	err := Make(filepath.Dir(dir))
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return dir, err
}

// Remove removes all folders of the attempt outside its record.
func (f Folders) Remove() error {
	err := os.RemoveAll(f.Runtime)
	if f.Disk != "" {
		err = errors.Join(err, os.RemoveAll(f.Disk))
	}
	return err
}
