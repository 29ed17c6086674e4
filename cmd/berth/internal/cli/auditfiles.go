package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/cmd/berth/internal/audit"
	"github.com/berth-eval/berth/plugins/task"
)

// tasksOf computes the digests of the tasks of an archive; nil for the folder of a
// run, which has none. Datasets that this berth cannot read are left out.
func (a *app) tasksOf(ctx context.Context, o *opened) (audit.Tasks, error) {
	if o.datasets == nil {
		return nil, nil
	}
	all := audit.Tasks{}
	for label, how := range o.read {
		at := slices.IndexFunc(a.formats, func(f task.Format) bool { return f.Name() == how.Format })
		folder, there := o.datasets[label]
		if at < 0 || !there {
			continue
		}
		listing, err := task.List(ctx, a.formats[at], folder, task.ListOptions{
			Options: task.Options{Lenient: true, AllowEnv: how.AllowEnv, LookupEnv: a.env, Config: how.Config, All: true},
		})
		if err != nil {
			return nil, fmt.Errorf("tasks of the dataset %q: %w", label, err)
		}
		all[label] = map[string]string{}
		for i := range listing.Items {
			it := &listing.Items[i]
			switch outside := slices.ContainsFunc(it.Problems, func(p task.Problem) bool { return p.Outside }); {
			case it.Task != nil:
				all[label][it.Name()] = it.Task.Digest
			case outside:
				all[label][it.Name()] = ""
			}
		}
	}
	return all, nil
}
