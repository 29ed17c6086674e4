package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/plugins/task"
)

// guard checks whether a task's files are still those of the plan: a run may
// take days, and an edit during the run would be graded under the old digest.
type guard struct {
	seen  sync.Map // index of the task in the plan to the digest of looks
	again func(ctx context.Context, t *plan.Task) (digest string, err error)
}

// check fails when the content of the task differs from the plan. It does not
// read files again whose metadata is unchanged. It is safe for concurrent use.
func (g *guard) check(ctx context.Context, place int, t *plan.Task) error {
	now, err := looks(t.Task.Dir)
	if err != nil {
		return fmt.Errorf("task %s: %w", t.Name, err)
	}
	if before, ok := g.seen.Load(place); ok && before == now {
		return nil
	}
	digest, err := g.again(ctx, t)
	if err != nil {
		return fmt.Errorf("task %s cannot be read any more: %w", t.Name, err)
	}
	if digest != t.Task.Digest {
		return fmt.Errorf("task %s was changed during the run: it was %s and is %s: change it back, or start a new run", t.Name, t.Task.Digest, digest)
	}
	g.seen.Store(place, now)
	return nil
}

// looks returns a digest of the names, modes, sizes and modification times
// below dir.
func looks(dir string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(h, "%q %v %d %d\n", p, fi.Mode(), fi.Size(), fi.ModTime().UnixNano())
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// reader returns a function that loads a task again with the format that made
// it.
func reader(formats []task.Format) func(context.Context, *plan.Task) (string, error) {
	return func(ctx context.Context, t *plan.Task) (string, error) {
		for _, f := range formats {
			if f.Name() != t.Task.Format && len(formats) > 1 {
				continue
			}
			// The task was accepted before; only its content matters.
			now, ps, err := f.Load(ctx, t.Task.Dir, task.Options{Lenient: true, AllowEnv: t.AllowEnv})
			switch {
			case err != nil:
				return "", err
			case now == nil && len(ps) > 0:
				return "", fmt.Errorf("it is invalid now: %s", ps[0])
			case now != nil:
				return now.Digest, nil
			}
		}
		return "", fmt.Errorf("no format %q", t.Task.Format)
	}
}
