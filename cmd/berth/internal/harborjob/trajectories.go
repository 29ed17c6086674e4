package harborjob

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/export"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// trajectories takes the trajectory of a trial, or of one of its steps, over, so
// that it can be shown. One that is not valid stays in agent/ as it is.
func trajectories(a *store.Attempt, trial, step string, c *copier) error {
	from := path.Join(stepDir(step), agentDir)
	name := path.Join(from, record.TrajectoryFile)
	b, err := untrusted.Read(trial, name, 256<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		c.note("%v", err)
		return nil
	}
	t, problems := trajectory.Parse(b)
	if len(problems) > 0 {
		c.note("%s is not a valid trajectory: %s", name, problems[0])
		return nil
	}
	if step == "" { // Harbor has no trajectory of all steps
		err = a.WriteFile(record.TrajectoryFile, b)
	}
	if err != nil {
		return err
	}
	for _, p := range export.Media(t) { // they are beside the trajectory there, and here too
		if p = path.Clean(p); !below(p) {
			continue
		}
		if err = c.file(trial, path.Join(from, p), filepath.Join(a.Dir(), filepath.FromSlash(p))); err != nil {
			return err
		}
	}
	for i := range t.Steps {
		s := record.Step{Stage: cmp.Or(step, "main"), Turn: 1, Role: "agent", Step: t.Steps[i]}
		if at, timeErr := time.Parse(time.RFC3339Nano, t.Steps[i].Timestamp); timeErr == nil {
			s.Time = at
		}
		if err = a.Append(record.StepsFile, s); err != nil {
			return err
		}
	}
	return nil
}

// below reports whether a file that a trajectory names is in a folder of its own below
// it: other names could be those of files of the run.
func below(name string) bool {
	top, _, below := strings.Cut(name, "/")
	return below && filepath.IsLocal(filepath.FromSlash(name)) && top != agentDir && top != verifierDir && top != artifactsDir
}
