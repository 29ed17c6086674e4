package cli

import (
	"errors"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// reportOf says what report writes.
type reportOf struct {
	page.Options

	out string
}

func (a *app) reportCommand() *cobra.Command {
	o := reportOf{Options: page.Options{Berth: version}}
	cmd := &cobra.Command{
		Use:   "report RUN [RUN ...]",
		Short: "Write the results of runs as one HTML file",
		Long: `Writes a report: what was run, the leaderboard with intervals, a map of tasks
and cells with their attempts, success against cost, outcomes, costs, findings
and integrity, all pairs with their tests, and how each number is defined. It is
one file of at most 2 MiB that needs no network.

Several runs are taken as one. Numbers are refused for the same reasons as in
berth compare. --force writes them, with the reasons.`,
		Example: "  berth report last -o report.html\n  berth report last --select 'agent != \"nop\"' -o agents.html",
		Args:    cobra.MinimumNArgs(1),

		RunE: func(_ *cobra.Command, args []string) error {
			if o.out == "" {
				return errors.New("-o is missing: name the file to write. Example: berth report last -o report.html")
			}
			return a.report(args, &o)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.out, "output", "o", "", "write the page to this `FILE`")
	fs.BoolVar(&o.Force, "force", false, "write numbers that are refused, with the reasons as marks")
	fs.Var((*selection.Text)(&o.Select), "select", "report only the trials for which this `EXPRESSION` is true")
	return cmd
}

// report writes the results of runs as a page.
func (a *app) report(names []string, o *reportOf) error {
	if err := usage.File(o.out); err != nil {
		return err
	}
	runs, err := readRuns(names)
	if err != nil {
		return err
	}
	if o.Rules, err = numbers.RulesOf(runs); err != nil {
		return err
	}
	b, err := page.Make(runs, &o.Options)
	if err != nil {
		return err
	}
	if err = renameio.WriteFile(o.out, b, 0o644, renameio.WithTempDir(filepath.Dir(o.out))); err != nil {
		return err
	}
	return a.say(output.Report{Path: o.out, Bytes: len(b)}, func() {
		a.Printf("report written to %s (%d KiB)\n", terminal.Clean(o.out), len(b)>>10)
	})
}
