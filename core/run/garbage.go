package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/store/node"
)

// Garbage is what killed processes left on this machine.
type Garbage struct {
	DryRun    bool     // nothing was removed; Sandboxes and Folders list what would be
	Sandboxes []string // "environment id"
	Folders   []string
	Problems  []string // what could not be removed, and why
}

// CollectGarbage removes what dead processes left: of one run, or of all runs
// when label is empty. It does not touch the sandboxes of a run that another
// process has resumed. dry does the same checks in the same order, and removes
// nothing.
func CollectGarbage(ctx context.Context, h *plugin.Host, label string, dry bool) (*Garbage, error) {
	res := &Garbage{DryRun: dry, Sandboxes: []string{}, Folders: []string{}}
	stale, err := node.Stale()
	for _, p := range stale {
		if ctx.Err() != nil || label != "" && p.Label != label {
			err = errors.Join(err, p.Leave())
			continue
		}
		resumed := label == "" && alive(p.Label)
		if p.Label != "" && !resumed && !res.sweep(ctx, h, p) {
			err = errors.Join(err, p.Leave()) // its list of sandboxes is needed next time
			continue
		}
		res.Folders = append(res.Folders, p.Folders()...)
		if dry {
			err = errors.Join(err, p.Leave())
			continue
		}
		err = errors.Join(err, p.Release())
	}
	return res, err
}

// alive reports whether a living process works on the run of a label.
func alive(label string) bool {
	owners, err := node.Living()
	if err != nil {
		return true
	}
	for _, o := range owners {
		if o.Label == label {
			return true
		}
	}
	return false
}

// sweep removes the sandboxes that were made for a place's owner, or only lists
// them in a dry run, and reports whether certainly none are left.
func (res *Garbage) sweep(ctx context.Context, h *plugin.Host, p *node.Place) bool {
	problems := len(res.Problems)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, name := range p.Environments {
		env, _, err := h.Environment(ctx, name)
		var ids []string
		if err == nil {
			ids, err = env.List(ctx, p.Label)
		}
		if err != nil {
			res.Problems = append(res.Problems, fmt.Sprintf("environment %s: %v", name, err))
			continue
		}
		for _, id := range ids {
			if res.DryRun {
				if !slices.Contains(res.Sandboxes, name+" "+id) { // two processes of one run share a label
					res.Sandboxes = append(res.Sandboxes, name+" "+id)
				}
				continue
			}
			if _, err = env.Destroy(ctx, id); err != nil {
				res.Problems = append(res.Problems, fmt.Sprintf("environment %s: sandbox %s: %v", name, id, err))
				continue
			}
			res.Sandboxes = append(res.Sandboxes, name+" "+id)
		}
	}
	return len(res.Problems) == problems
}
