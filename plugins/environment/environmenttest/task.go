package environmenttest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
)

// taskClause runs a sandbox as a task wants it.
var taskClause = clause{
	Name: "the Dockerfile of a task is built and run", Guards: "an environment that makes sandboxes and can run no task",
	Time: 2 * time.Minute, Proof: true,
	Skip: func(s Subject) string { return s.kit.refusesTasks },
	Run: func(t *conformance.T, s Subject) {
		base := s.common(t).Image.Ref
		build, err := s.task(base, s.kit.copiesFiles)
		t.Must("make a task", err)
		image := environment.Image{Build: build, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(base+build)))}
		if p, ok := s.Environment.(environment.Preparer); ok {
			prepared, err := p.Prepare(t.Context(), image, s.Spec.Config, func(line string) { t.Logf("%s", line) })
			switch {
			case err == nil:
				image = prepared
				t.Cleanup(func(ctx context.Context) {
					if k, ok := s.Environment.(environment.Keeper); ok && s.serves(environment.CapabilityImageGC) {
						_, _ = k.Drop(ctx, image.Ref)
					}
				})
			case s.serves(environment.CapabilityImages) || !errors.Is(err, environment.ErrUnsupported):
				t.Fatalf("prepare: %v", err)
			}
		}
		b := s.Fresh(t, func(p *environment.Spec) { p.Image = image })
		if b.Image.Workdir != taskFolder {
			t.Errorf("its facts have the working folder %q, the Dockerfile %q", b.Image.Workdir, taskFolder)
		}
		script := `pwd; echo "$KIT_VALUE"; cat answer.txt`
		if !s.kit.copiesFiles {
			script = "echo 42 > answer.txt; " + script
		}
		b.as("", b.Image.Workdir, b.Image.Env).prints(taskFolder+"\nof-the-task\n42", script)
	},
}

const taskFolder = "/kit-task"

// task makes the build folder of a task, in which files are copied with copies.
// Only an environment of images must do that.
func (s *Subject) task(base string, copies bool) (string, error) {
	if base == "" {
		base = "scratch"
	}
	text := "FROM " + base + "\nWORKDIR " + taskFolder + "\nENV KIT_VALUE=of-the-task\n"
	if copies {
		text += "COPY answer.txt ./\n"
	}
	dir := filepath.Join(s.kit.folder, fmt.Sprint("t", s.kit.counter.Add(1)))
	return dir, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(dir, "answer.txt"), []byte("42\n"), 0o644))
}

// tryTask finds out whether an environment without images copies files, and why
// it does not run a task with a Dockerfile. One with images has no such excuse.
func (s *Subject) tryTask(ctx context.Context) error {
	var refusal error
	for _, copies := range []bool{true, false} {
		s.kit.copiesFiles = copies
		if s.serves(environment.CapabilityImages) {
			return nil
		}
		build, err := s.task("", copies)
		if err != nil {
			return fmt.Errorf("make a task for the kit: %w", err)
		}
		refusal = s.refusal(ctx, func(p *environment.Spec) { p.Image = environment.Image{Build: build} })
		if !errors.Is(refusal, environment.ErrRefused) {
			return refusal
		}
	}
	s.kit.refusesTasks = fmt.Sprintf("it has no images and refuses the Dockerfile of a task: %v", refusal)
	return nil
}
