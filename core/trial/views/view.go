package views

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// Build makes the view of a role in a stage as the new folder dir: task.json,
// instruction.md and the resources for the role under their names. Attempt adds
// what the attempt itself made.
func Build(dir string, t *task.Task, role task.Role, stage string) error {
	s := t.Stage(stage)
	if s == nil {
		return fmt.Errorf("task %s has no stage %q", t.Name, stage)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("view of %s: %w", role, err)
	}
	seen := t.View(role, stage)
	b, err := json.MarshalIndent(seen, "", "  ")
	if err != nil {
		return fmt.Errorf("view of %s: %w", role, err)
	}
	if err = os.WriteFile(filepath.Join(dir, TaskFile), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("view of %s: %w", role, err)
	}
	if err = os.WriteFile(filepath.Join(dir, InstructionFile), []byte(Instruction(s)), 0o600); err != nil {
		return fmt.Errorf("view of %s: %w", role, err)
	}
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return fmt.Errorf("view of %s: %w", role, err)
	}
	defer root.Close()
	for i := range seen.Resources {
		r := &seen.Resources[i]
		if !filepath.IsLocal(filepath.FromSlash(r.Name)) {
			return fmt.Errorf("view of %s: resource name %q is not a path below the view", role, r.Name)
		}
		if err := write(t, r, root, dir); err != nil {
			return fmt.Errorf("view of %s: %w", role, err)
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
			parts = append(parts, "("+p.Resource+")")
			continue
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
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	defer root.Close()
	for i := range t.Resources {
		r := &t.Resources[i]
		if !slices.Contains(names, r.Name) || !filepath.IsLocal(filepath.FromSlash(r.Name)) {
			continue
		}
		if err := write(t, r, root, dir); err != nil {
			return err
		}
	}
	return nil
}
