package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/prune"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/store/node"
)

func (a *app) gcCommand() *cobra.Command {
	dry := false
	var images imageFlags
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what killed runs left on this machine",
		Long: `Removes sandboxes, sockets and folders of runs whose process is gone. Runs that
are under way, and everything in run folders, are left alone.

Images that were built for tasks, or loaded from archives, stay for the next
run. With a rule for them, those of each environment that the rule does not keep
are removed, but never one that a sandbox or a run uses, and never one that
Berth did not make.`,
		Example: "  berth gc\n  berth gc --dry-run\n  berth gc --images-within 168h --images-gib 50",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rule, err := images.rule(cmd)
			if err != nil {
				return err
			}
			h, err := a.host()
			if err != nil {
				return err
			}
			defer h.Stop()
			res, err := collect(cmd.Context(), h, "", dry)
			if err != nil {
				return err
			}
			if rule.Any() {
				if err = prune.Images(cmd.Context(), h, rule, dry, res); err != nil {
					return err
				}
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
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be removed, sandboxes included, and remove nothing")
	images.declare(cmd)
	return cmd
}

// imageFlags are the parts of a rule for images.
type imageFlags struct {
	keep, gib int64
	within    time.Duration
}

func (f *imageFlags) declare(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&f.keep, "images-keep", 0, "keep this `NUMBER` of images of an environment, those that were used last")
	cmd.Flags().DurationVar(&f.within, "images-within", 0, "keep images that were used within this `TIME`, such as 168h")
	cmd.Flags().Int64Var(&f.gib, "images-gib", 0, "keep images that were used last, up to so many `GIB`; shared layers count in each")
}

// rule has the parts that were given.
func (f *imageFlags) rule(cmd *cobra.Command) (prune.Rule, error) {
	if min(f.keep, f.gib, int64(f.within)) < 0 {
		return prune.Rule{}, errors.New("--images-keep, --images-within and --images-gib may not be negative: write 0 to keep no image but those in use")
	}
	rule := prune.Rule{}
	if cmd.Flags().Changed("images-keep") {
		rule.Newest = &f.keep
	}
	if cmd.Flags().Changed("images-within") {
		rule.Within = &f.within
	}
	if cmd.Flags().Changed("images-gib") {
		rule.MiB = new(f.gib << 10)
	}
	return rule, nil
}

// collect removes what processes left that are gone: of one run, or of all
// when label is empty. The sandboxes of a run that is under way again under
// another process are not touched. dry looks at the same things in the same
// order, and removes none.
func collect(ctx context.Context, h *plugin.Host, label string, dry bool) (*output.GC, error) {
	res := &output.GC{DryRun: dry, Sandboxes: []string{}, Folders: []string{}}
	stale, err := node.Stale()
	for _, p := range stale {
		if ctx.Err() != nil || label != "" && p.Label != label {
			err = errors.Join(err, p.Leave())
			continue
		}
		resumed := label == "" && alive(p.Label)
		if p.Label != "" && !resumed && !sweep(ctx, h, p, res) {
			err = errors.Join(err, p.Leave()) // what it says of its sandboxes is needed the next time
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

// sweep removes the sandboxes that were made for a place's owner, or lists them
// only in a dry run, and says whether none can be left.
func sweep(ctx context.Context, h *plugin.Host, p *node.Place, res *output.GC) bool {
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

func (a *app) sayGC(res *output.GC) {
	verb := "removed"
	if res.DryRun {
		verb = "would remove"
	}
	for _, s := range res.Sandboxes {
		a.Printf("%s sandbox %s\n", verb, terminal.Clean(s))
	}
	for _, f := range res.Folders {
		a.Printf("%s %s\n", verb, f)
	}
	for _, im := range res.Images {
		used := ""
		if !im.Used.IsZero() {
			used = ", last used " + im.Used.Local().Format(time.DateTime)
		}
		a.Printf("%s image %s %s (%d MiB%s)\n", verb, im.Environment, terminal.Clean(im.Ref), im.SizeMiB, used)
	}
	if res.ImagesKept > 0 {
		a.Printf("kept %s\n", terminal.Count(res.ImagesKept, "image", "images"))
	}
	for _, p := range res.Problems {
		a.Notef("%s %s\n", terminal.Paint(a.ErrColor, terminal.Bad, "Error:"), terminal.Clean(p))
	}
	if len(res.Sandboxes)+len(res.Folders)+len(res.Images) == 0 {
		a.Printf("nothing to remove\n")
	}
}
