package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// scratchJob is what this process has in a scratch folder for itself, while other
// pilots of this user use the same folder.
type scratchJob struct {
	a       *app
	scratch string
	lock    *flock.Flock
}

// beginJob makes plugins that are started from now on keep what is theirs in a scratch
// folder, under a name that no other process has. The caller ends the job when they
// have stopped.
func (a *app) beginJob(scratch, name string) (*scratchJob, error) {
	if strings.Contains(scratch, ":") {
		return nil, fmt.Errorf("scratch folder %s: a colon in its path is not supported: name another one with --scratch", scratch)
	}
	j := &scratchJob{a: a, scratch: scratch, lock: flock.New(filepath.Join(scratch, runtimedir.JobLock(name)))}
	ok, err := j.lock.TryLock()
	if err == nil && !ok {
		err = errors.New("another process has it")
	}
	if err != nil {
		return nil, fmt.Errorf("scratch folder: lock %s: %w", j.lock.Path(), err)
	}
	a.forJob = []string{runtimedir.ScratchEnv + "=" + scratch, runtimedir.JobEnv + "=" + name}
	return j, nil
}

// vacating is how long environments may take to remove what jobs left.
const vacating = time.Minute

// end lets environments remove what they kept for the job, and also what dead jobs
// left.
func (j *scratchJob) end(ctx context.Context, environments []string) error {
	j.a.forJob = nil
	err := errors.Join(os.Remove(j.lock.Path()), j.lock.Unlock())
	return errors.Join(err, j.a.vacate(ctx, []string{j.scratch}, environments))
}

// vacate lets environments remove what dead jobs left in scratch folders. They look
// for nothing else.
func (a *app) vacate(ctx context.Context, folders, environments []string) error {
	if len(environments) == 0 || len(folders) == 0 {
		return nil
	}
	before := a.forJob
	a.forJob = []string{runtimedir.ScratchEnv + "=" + strings.Join(folders, ":"), runtimedir.JobEnv + "=" + runtimedir.NoJob}
	h, err := a.host()
	a.forJob = before
	if err != nil {
		return err
	}
	defer h.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), vacating)
	defer cancel()
	for _, name := range environments {
		env, _, failed := h.Environment(ctx, name)
		if failed == nil {
			_, failed = env.List(ctx, "no run has this name")
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("environment %s: %w", name, failed))
		}
	}
	return err
}

// vacateAll is vacate with all environments of this machine, for those scratch folders
// that have something of them.
func (a *app) vacateAll(ctx context.Context, h *plugin.Host, folders []string, dry bool) error {
	folders = slices.DeleteFunc(slices.Clone(folders), func(dir string) bool {
		found, err := filepath.Glob(filepath.Join(dir, "*", "jobs", "*"))
		return err != nil || len(found) == 0
	})
	if dry || len(folders) == 0 {
		return nil
	}
	entries, err := h.List(ctx)
	if err != nil {
		return err
	}
	var names []string
	for i := range entries {
		if e := &entries[i]; e.Kind == plugins.KindEnvironment && e.ShadowedBy == "" && e.Error == "" {
			names = append(names, e.Name)
		}
	}
	return a.vacate(ctx, folders, names)
}
