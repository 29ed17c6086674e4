package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/plugins/task"
)

// guard checks whether a task's files are still those of the plan: a run may
// take days, and an edit during the run would be graded under the old digest.
type guard struct {
	formats []task.Format
	seen    sync.Map // index of the task in the plan to the digest of looks
}

// check fails when the content of the task differs from the plan. It does not
// read files again whose metadata is unchanged. It is safe for concurrent use.
func (g *guard) check(ctx context.Context, place int, t *plan.Task) error {
	at := slices.IndexFunc(g.formats, func(f task.Format) bool { return f.Name() == t.Task.Format })
	if at < 0 {
		return fmt.Errorf("task %s: no format %q", t.Name, t.Task.Format)
	}
	now, err := looks(task.Files(g.formats[at], t.Task))
	if err != nil {
		return fmt.Errorf("task %s cannot be read any more: %w", t.Name, err)
	}
	if before, ok := g.seen.Load(place); ok && before == now {
		return nil
	}
	o := t.Options
	o.Lenient = true // the task was accepted before; only its content matters
	again, ps, err := task.Reload(ctx, g.formats[at], t.Task, o)
	switch {
	case err != nil:
		return fmt.Errorf("task %s cannot be read any more: %w", t.Name, err)
	case again == nil:
		return fmt.Errorf("task %s cannot be read any more: it is invalid now: %s", t.Name, plan.FirstError(ps))
	case again.Digest != t.Task.Digest:
		return fmt.Errorf("task %s was changed during the run: it was %s and is %s: change it back, or start a new run", t.Name, t.Task.Digest, again.Digest)
	}
	g.seen.Store(place, now)
	return nil
}

// looks returns a digest of the names, modes, sizes and modification times of
// files, and below folders.
func looks(paths []string) (string, error) {
	h := sha256.New()
	for _, top := range paths {
		err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
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
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
