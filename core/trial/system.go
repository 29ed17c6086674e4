package trial

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/environment"
	shell "github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/system"
	"github.com/berth-eval/berth/plugins/task"
)

// systemFiles is what is known of the agent's sandbox before system files of its
// snapshot are replaced by those of the image.
type systemFiles struct {
	commands host.Commands
	changed  []string // paths that differ from the image
	tools    host.Changed
}

// systemChanges looks for changes of what the verification runs, apart from
// folders whose files will be replaced.
func (s *stage) systemChanges(ctx context.Context, p record.Phase) (err error) {
	w := s.second
	if w.system.commands, err = s.commands(s.atEnd()); err != nil {
		return outcome.On(record.ByConfig, err)
	}
	if w.system.tools, err = s.lookForChanges(ctx, s.atEnd(), system.Folders()...); err != nil {
		s.unknownChanges(p, err)
	}
	w.services = w.system.tools.Services
	return nil
}

// putSystemBack replaces system files in the second sandbox, before anything is
// started there, and records which. The original files come from a third sandbox,
// on the image of the agent's.
func (s *stage) putSystemBack(ctx context.Context, p record.Phase) error {
	a, w := s.a, s.second
	ctx, end := s.graded.Ctx(ctx)
	defer end()
	name := fmt.Sprintf("image-%d", s.i+1)
	var failed error // of the third sandbox
	done, err := host.PutSystemBack(ctx, host.PutBack{
		Snapshot: s.graded.Core(), Changed: w.system.changed,
		Env: w.system.commands.Env, Dir: s.graded.Dir, Programs: w.system.commands.Programs,
		Image: func() (shell.Shell, error) {
			original, err := s.originalSandbox(ctx, name)
			if failed = err; err != nil {
				return nil, err
			}
			return original.Core(), nil
		},
	})
	original := a.sandboxes[name]
	if original != nil && original.Gone() {
		failed = err
	}
	if original != nil {
		if left := a.destroySandbox(ctx, name); left != nil {
			a.recorder.Note(p, "cleanup", "%s", left)
		}
	}
	if failed != nil {
		return outcome.On(record.ByEnvironment, fmt.Errorf("sandbox of the original image: %w", limits.Caused(ctx, err)))
	}
	if err != nil { // it depends on what the agent left
		return outcome.On(record.ByAgent, fmt.Errorf("put system files back: %w", limits.Caused(ctx, err)))
	}
	s.out.System = &record.SystemFiles{More: done.More, Kept: done.Open}
	for _, name := range done.Paths {
		s.out.System.PutBack = append(s.out.System.PutBack, a.recorder.Text(name, limits.ListedName))
	}
	if len(done.Paths) > 0 {
		a.recorder.Note(p, "system_put_back", "these files differed from the image and were put back: %s", listed(done.Paths, done.More))
	}
	if len(done.Open) > 0 {
		a.recorder.Exposed(p, "system_kept", "these folders of programs or libraries were not taken from the image, because the task works there: %s", listed(done.Open, 0))
	}
	s.exposedTools(p, slices.DeleteFunc(w.system.tools.Files, done.Covers), w.system.tools.More)
	for i := range w.services {
		w.services[i].Files = slices.DeleteFunc(w.services[i].Files, done.Covers)
	}
	return nil
}

// originalSandbox creates a sandbox of the image of the agent's, from which files
// are read. Nothing is started in it.
func (s *stage) originalSandbox(ctx context.Context, name string) (*sandbox.Sandbox, error) {
	w := s.second
	spec := w.spec
	spec.Image, spec.Network = w.original, environment.Network{Mode: environment.NetworkNone}
	spec.Sidecars, spec.Volumes, spec.Services, spec.Address = nil, nil, nil, ""
	return s.a.newSandbox(ctx, name, sandbox.Order{
		Spec: spec, Folder: filepath.Join(s.a.in.Runtime, fmt.Sprintf("i%d-", s.i+1)), Task: &task.Environment{},
	})
}
