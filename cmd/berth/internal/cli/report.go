package cli

import (
	"errors"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
)

func (a *app) reportCommand() *cobra.Command {
	out := ""
	o := page.Options{Berth: version, Largest: numbers.DefaultMaxInfrastructure}
	cmd := &cobra.Command{
		Use:   "report RUN [RUN ...]",
		Short: "Write the results of runs as one HTML file",
		Long: `Writes a report: what was run, the leaderboard with intervals, a map of tasks and
cells with their attempts, curves, success against cost, outcomes, costs,
findings and integrity, all pairs with their tests, and how each number is
defined. It is one file of at most 2 MiB that needs no network.

Several runs are taken as one. Cells of which more than 2 % of the planned trials
were not measured are marked.`,
		Example: "  berth report last -o report.html",
		Args:    cobra.MinimumNArgs(1),

		ValidArgsFunction: func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
			return completeRun(cmd, nil, begin)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return errors.New("-o is missing: name the file to write. Example: berth report last -o report.html")
			}
			return a.report(args, out, &o)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of random permutations")
	return cmd
}

// report writes the results of runs as a page.
func (a *app) report(names []string, out string, o *page.Options) error {
	var dirs []string
	for _, name := range names {
		dir, err := report.FindRun(name)
		if err != nil {
			return err
		}
		dirs = append(dirs, dir)
	}
	runs, err := numbers.Read(dirs...)
	if err != nil {
		return err
	}
	b, err := page.Make(runs, o)
	if err != nil {
		return err
	}
	if err = renameio.WriteFile(out, b, 0o644, renameio.WithTempDir(filepath.Dir(out))); err != nil {
		return err
	}
	if done, err := a.Answer(output.Report{Path: out, Bytes: len(b)}); done {
		return err
	}
	a.Printf("report written to %s (%d KiB)\n", terminal.Clean(out), len(b)>>10)
	return nil
}
