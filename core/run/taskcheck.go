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

// guard checks that a task's files are still those of the plan: a run may take days,
// and a task that was edited meanwhile would be graded under the old digest.
type guard struct {
	seen  sync.Map // place of the task in the plan to how its files look
	again func(ctx context.Context, t *plan.Task) (digest string, err error)
}

// check fails if the content of the task differs from the plan. It does not read
// files again whose size, mode and times are the same. It is safe for concurrent use.
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

// looks is a digest of names, modes, sizes and times of change below dir.
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

// reader loads a task again, by the format that made it.
func reader(formats []task.Format, o task.Options) func(context.Context, *plan.Task) (string, error) {
	return func(ctx context.Context, t *plan.Task) (string, error) {
		for _, f := range formats {
			if f.Name() != t.Task.Format && len(formats) > 1 {
				continue
			}
			o.Lenient = true // it was taken before; only its content counts
			now, ps, err := f.Load(ctx, t.Task.Dir, o)
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
