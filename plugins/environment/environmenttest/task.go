package environmenttest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
)

// taskClause runs a sandbox as a task wants it.
var taskClause = conformance.Clause[Subject]{
	Name:   "the Dockerfile of a task is built and run",
	Guards: "an environment that makes sandboxes and can run no task",
	Time:   2 * time.Minute,
	Proof:  true,
	Skip:   func(s Subject) string { return s.kit.refusesTasks },
	Run: func(ctx context.Context, t *conformance.T, s Subject) {
		base := s.common(ctx, t).Image.Ref
		whole := s.serves(environment.CapabilityImages)
		copies := whole || s.kit.copiesFiles
		build, err := s.task(base, copies)
		if err != nil {
			t.Fatalf("%v", err)
		}
		image := environment.Image{Build: build, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(base+build)))}
		if p, ok := s.Environment.(environment.Preparer); ok {
			prepared, err := p.Prepare(ctx, image, s.Spec.Config, func(line string) { t.Logf("%s", line) })
			switch {
			case err == nil:
				image = prepared
				t.Cleanup(func() { s.drop(context.WithoutCancel(ctx), image) })
			case whole || !errors.Is(err, environment.ErrUnsupported):
				t.Fatalf("prepare: %v", err)
			}
		}
		b := s.fresh(ctx, t, func(p *environment.Spec) { p.Image = image })
		if b.Image.Workdir != taskFolder {
			t.Errorf("its facts have the working folder %q, the Dockerfile %q", b.Image.Workdir, taskFolder)
		}
		var env []string
		for k, v := range b.Image.Env {
			env = append(env, k+"="+v)
		}
		script := `pwd; echo "$KIT_VALUE"; cat answer.txt`
		if !copies {
			script = "echo 42 > answer.txt; " + script
		}
		want := taskFolder + "\nof-the-task\n42"
		if got := sh(ctx, t, b.shellAs(ctx, t, "", b.Image.Workdir, env), script); got != want {
			t.Errorf("a command printed %q, want %q", got, want)
		}
	},
}

const taskFolder = "/kit-task"

// task makes the build folder of a task, in which files are copied with copies.
// Only an environment of images must do that.
func (s *Subject) task(base string, copies bool) (string, error) {
	text := "FROM " + base + "\nWORKDIR " + taskFolder + "\nENV KIT_VALUE=of-the-task\n"
	if base == "" {
		text = "FROM scratch\nWORKDIR " + taskFolder + "\nENV KIT_VALUE=of-the-task\n"
	}
	if copies {
		text += "COPY answer.txt ./\n"
	}
	dir := filepath.Join(s.kit.folder, fmt.Sprint("t", s.kit.counter.Add(1)))
	return dir, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(dir, "answer.txt"), []byte("42\n"), 0o644))
}

// taskRefusal says why an environment without images does not run a task with a
// Dockerfile; empty if it does. One with images has no such excuse. It also finds
// out whether such an environment copies files.
func (s *Subject) taskRefusal(ctx context.Context) (string, error) {
	if s.serves(environment.CapabilityImages) {
		return "", nil
	}
	refusal, err := s.refusal(ctx, true)
	if s.kit.copiesFiles = err == nil && refusal == ""; s.kit.copiesFiles || err != nil {
		return "", err
	}
	if refusal, err = s.refusal(ctx, false); refusal != "" {
		refusal = "it has no images and refuses the Dockerfile of a task: " + refusal
	}
	return refusal, err
}

// refusal is why the environment refuses a task, which may copy files.
func (s *Subject) refusal(ctx context.Context, copies bool) (string, error) {
	build, err := s.task("", copies)
	if err != nil {
		return "", fmt.Errorf("make a task for the kit: %w", err)
	}
	spec, folder, err := s.spec(func(p *environment.Spec) { p.Image = environment.Image{Build: build} })
	if err != nil {
		return "", err
	}
	defer func() { _ = folder.Close() }()
	ctx, cancel := context.WithTimeout(ctx, conformance.Patience(10*time.Second))
	defer cancel()
	report, err := s.Environment.Check(ctx, spec)
	if err != nil || len(report.Refusals) == 0 {
		return "", nil //nolint:nilerr // a clause reports it
	}
	return report.Refusals[0].String(), nil
}

// drop removes an image that the kit had built, where the environment keeps
// them.
func (s *Subject) drop(ctx context.Context, i environment.Image) {
	if k, ok := s.Environment.(environment.Keeper); ok && s.serves(environment.CapabilityImageGC) {
		_, _ = k.Drop(ctx, i.Ref)
	}
}

func (s *Subject) serves(capability string) bool { return slices.Contains(s.Capabilities, capability) }
