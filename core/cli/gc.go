package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/core/cli/answer"
	"github.com/berth-eval/berth/core/cli/out"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/store/node"
)

func (a *app) gcCommand() *cobra.Command {
	dry := false
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what killed runs left on this machine",
		Long: `Removes sandboxes, sockets and folders of runs whose process is gone. Runs that are
under way, and everything in run folders, are left alone.`,
		Example: "  berth gc\n  berth gc --dry-run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.host()
			if err != nil {
				return err
			}
			defer h.Stop()
			res, err := collect(cmd.Context(), h, "", dry)
			if err != nil {
				return err
			}
			if done, err := a.Answer(res); err != nil {
				return err
			} else if !done {
				a.sayGC(res)
			}
			if len(res.Problems) > 0 {
				return &exit{exitErrors, nil}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be removed")
	return cmd
}

// collect removes what processes left that are gone: of one run, or of all
// when label is empty. The sandboxes of a run that is under way again under
// another process are not touched.
func collect(ctx context.Context, h *plugin.Host, label string, dry bool) (*answer.GC, error) {
	res := &answer.GC{DryRun: dry, Sandboxes: []string{}, Folders: []string{}}
	stale, err := node.Stale()
	for _, p := range stale {
		keep := dry || ctx.Err() != nil || label != "" && p.Label != label
		resumed := label == "" && alive(p.Label)
		if !keep && p.Label != "" && !resumed {
			sweep(ctx, h, p, res)
		}
		if label != "" && p.Label != label {
			err = errors.Join(err, p.Leave())
			continue
		}
		res.Folders = append(res.Folders, p.Dir)
		if keep {
			err = errors.Join(err, p.Leave())
			continue
		}
		err = errors.Join(err, p.Release())
	}
	return res, err
}

// alive says whether a process that lives works on the run of a label.
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

// sweep removes the sandboxes that were made for a place's owner.
func sweep(ctx context.Context, h *plugin.Host, p *node.Place, res *answer.GC) {
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
			if _, err = env.Destroy(ctx, id); err != nil {
				res.Problems = append(res.Problems, fmt.Sprintf("environment %s: sandbox %s: %v", name, id, err))
				continue
			}
			res.Sandboxes = append(res.Sandboxes, name+" "+id)
		}
	}
}

func (a *app) sayGC(res *answer.GC) {
	verb := "removed"
	if res.DryRun {
		verb = "would remove"
	}
	for _, s := range res.Sandboxes {
		a.Printf("%s sandbox %s\n", verb, out.Clean(s))
	}
	for _, f := range res.Folders {
		a.Printf("%s %s\n", verb, f)
	}
	for _, p := range res.Problems {
		a.Notef("%s %s\n", out.Paint(a.ErrColor, out.Bad, "Error:"), out.Clean(p))
	}
	if len(res.Sandboxes)+len(res.Folders) == 0 {
		a.Printf("nothing to remove\n")
	}
}
