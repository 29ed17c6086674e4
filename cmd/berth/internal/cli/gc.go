package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/cmd/berth/internal/bundles"
	"github.com/berth-eval/berth/cmd/berth/internal/images"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store/node"
)

func (a *app) gcCommand() *cobra.Command {
	dry := false
	var scratch string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what killed runs left on this machine",
		Long: `Removes sandboxes, sockets and folders of runs whose process is gone, and what
builds of bundles left that were killed. It touches no active run and no run
folder.

Images that were built for tasks, or loaded from archives, are kept for the
next run. --images-within removes those that were not used within that time, but
for those that a sandbox or a run uses and those that Berth did not create.`,
		Example: "  berth gc\n  berth gc --dry-run\n  berth gc --images-within 168h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if within < 0 {
				return errors.New("--images-within must not be negative: 0 keeps only images in use")
			}
			h, err := a.host()
			if err != nil {
				return err
			}
			defer h.Stop()
			left, err := run.CollectGarbage(cmd.Context(), h, "", dry)
			if err != nil {
				return err
			}
			res := &output.GC{DryRun: dry, Sandboxes: left.Sandboxes, Folders: left.Folders, Problems: left.Problems}
			a.removeFolders(cmd.Context(), h, res, scratch)
			if cmd.Flags().Changed("images-within") {
				pruned, err := images.Prune(cmd.Context(), h, within, dry)
				if err != nil {
					return err
				}
				res.Images, res.ImagesKept = pruned.Removed, pruned.Kept
				res.Problems = append(res.Problems, pruned.Problems...)
			}
			if err := a.say(res, func() { a.sayGC(res) }); err != nil {
				return err
			}
			if len(res.Problems) > 0 {
				return &exit{exitErrors, nil}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "list what would be removed, including sandboxes, and remove nothing")
	cmd.Flags().StringVar(&scratch, "scratch", "", "also remove what pilots left below `DIR`, the scratch folder of an experiment")
	cmd.Flags().DurationVar(&within, "images-within", 0, "keep images that were used within this `TIME`, for example 168h")
	return cmd
}

// removeFolders removes what killed processes left in folders of this machine.
func (a *app) removeFolders(ctx context.Context, h *plugin.Host, res *output.GC, scratch string) {
	note := func(folders []string, err error) {
		res.Folders = append(res.Folders, folders...)
		if err != nil {
			res.Problems = append(res.Problems, err.Error())
		}
	}
	note(a.bundles().Left(res.DryRun))
	folders := a.scratchFolders(scratch)
	for _, dir := range folders {
		note(node.SweepScratch(dir, res.DryRun))
		note(bundler.SweepCopies(bundles.CopiesIn(dir), res.DryRun))
	}
	note(nil, a.vacateAll(ctx, h, folders, res.DryRun))
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
