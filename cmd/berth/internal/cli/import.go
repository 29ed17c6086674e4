package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/harborjob"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
)

func (a *app) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Read results of other programs as a run",

		Example: "  berth import harbor jobs/from-berth --runs imported",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.importHarborCommand())
	return cmd
}

func (a *app) importHarborCommand() *cobra.Command {
	runs := report.RunsDir
	cmd := &cobra.Command{
		Use:   "harbor JOBDIR",
		Short: "Read a job of Harbor as a run",
		Long: `Reads the folder of one job of Harbor and writes it as a run, which berth show,
compare, report and export accept like any other. It cannot be resumed.
docs/exchange.md says which result becomes what.`,
		Example: "  berth import harbor jobs/from-berth --runs imported",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.importHarbor(args[0], runs) },
	}
	cmd.Flags().StringVar(&runs, "runs", runs, "create the folder of the run in `DIR`")
	return cmd
}

// importHarbor writes a job of Harbor as a run.
func (a *app) importHarbor(job, runs string) error {
	done, err := harborjob.Import(job, runs, version)
	if err != nil {
		return fmt.Errorf("import %s: %w", job, err)
	}
	return a.say(output.Import{Dir: done.Dir, Trials: done.Trials, Notes: done.Notes}, func() {
		dir := terminal.Clean(report.Display(done.Dir))
		a.Printf("%s written to %s\n", terminal.Count(done.Trials, "trial", "trials"), dir)
		a.sayNotes(done.Notes)
		a.Printf("show it:     berth show %s\n", dir)
	})
}
