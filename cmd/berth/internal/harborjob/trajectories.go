package harborjob

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

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
	for _, p := range pictures(t) { // they are beside the trajectory there, and here too
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

// pictures returns the images and sounds that a trajectory names, if they are in
// folders of their own below it: other names could be those of files of the run.
func pictures(t *trajectory.Trajectory) (names []string) {
	add := func(parts []trajectory.Part) {
		for _, p := range parts {
			if p.Source == nil {
				continue
			}
			n := path.Clean(p.Source.Path)
			top, _, below := strings.Cut(n, "/")
			if below && filepath.IsLocal(filepath.FromSlash(n)) && !strings.Contains(n, "://") && top != agentDir && top != verifierDir && top != artifactsDir {
				names = append(names, n)
			}
		}
	}
	for i := range t.Steps {
		add(t.Steps[i].Message.Parts)
		if o := t.Steps[i].Observation; o != nil {
			for j := range o.Results {
				if o.Results[j].Content != nil {
					add(o.Results[j].Content.Parts)
				}
			}
		}
	}
	return names
}
