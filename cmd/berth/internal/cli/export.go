package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/export"
	"github.com/berth-eval/berth/cmd/berth/internal/harborjob"
	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// exports are the formats that berth export writes.
var exports = []string{string(export.CSV), string(export.JSONL), string(export.Parquet), "harbor", "atif", "bundle"}

func (a *app) exportCommand() *cobra.Command {
	to, out, chosen := "", "", ""
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "Write the results of a run for other programs",
		Long: `Writes the results of a run in another format. csv, jsonl and parquet are tables
with a row for each attempt; where the column counts is true, the row is the
result of its trial. harbor is a job folder that Harbor's viewer opens. atif is
a folder with the trajectory of each accepted attempt. bundle is one archive
with the run, its experiment and its tasks, which berth audit and berth replay
accept.

docs/exchange.md lists the columns and says which outcome becomes what.`,
		Example: "  berth export last --to csv -o attempts.csv\n  berth export last --to csv -o failed.csv --select 'outcome == \"failed\"'\n  berth export last --to harbor -o jobs/from-berth\n  berth export last --to atif -o trajectories\n  berth export last --to bundle -o published.tar.zst",
		Args:    cobra.ExactArgs(1),

		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case to == "":
				return fmt.Errorf("--to is missing: choose one of %s. Example: berth export last --to csv -o attempts.csv", strings.Join(exports, ", "))
			case !slices.Contains(exports, to):
				return fmt.Errorf("--to: no format %q. Choose one of %s", to, strings.Join(exports, ", "))
			case out == "":
				return errors.New("-o is missing: name the file or folder to write. Example: berth export last --to csv -o attempts.csv")
			}
			if to != "harbor" && to != "atif" {
				if err := usage.File(out); err != nil {
					return err
				}
			}
			if to == "bundle" {
				if chosen != "" {
					return errors.New("--select is not for bundle: an archive has the whole run, so that it can be audited")
				}
				return a.exportBundle(cmd.Context(), args[0], out)
			}
			return a.export(args[0], to, out, chosen)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`FORMAT`: "+strings.Join(exports, ", "))
	cmd.Flags().StringVarP(&out, "output", "o", "", "`PATH` of the file to write; for harbor and atif, of a new folder")
	cmd.Flags().Var((*selection.Text)(&chosen), "select", "export only the trials for which this `EXPRESSION` is true")
	return cmd
}

// export writes the results of a run in another format.
func (a *app) export(name, to, out, chosen string) error {
	runs, err := readRuns([]string{name})
	if err != nil {
		return err
	}
	r, dir := &export.Run{Run: runs[0]}, runs[0].Dir
	if r.Readers, err = notes.Read(dir); err != nil {
		return err
	}
	e, err := selection.Of(chosen, dir, r.Manifest)
	if err != nil {
		return err
	}
	if r.Trials, err = e.Trials(r.Manifest, r.Index); err != nil {
		return err
	}
	var done *export.Done
	switch to {
	case "harbor":
		done, err = harborjob.Export(r, out)
	case "atif":
		done, err = export.Trajectories(r, out)
	default:
		done, err = export.Table(r, export.Format(to), out)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", report.Display(dir), err)
	}
	what := terminal.Count(done.Rows, "row", "rows")
	switch to {
	case "harbor":
		what = terminal.Count(done.Rows, "trial", "trials")
	case "atif":
		what = terminal.Count(done.Rows, "trajectory", "trajectories")
	}
	return a.exported(output.Export{Run: dir, Format: to, Path: out, Rows: done.Rows, Columns: done.Columns, Notes: done.Notes}, what)
}

// exported says what was written.
func (a *app) exported(done output.Export, what string) error {
	return a.say(done, func() {
		a.Printf("%s written to %s\n", what, terminal.Clean(done.Path))
		a.sayNotes(done.Notes)
	})
}

// sayNotes says what is missing from what was written or read, and why.
func (a *app) sayNotes(notes []string) {
	for _, n := range notes {
		a.Printf("%s %s\n", terminal.Paint(a.Color, terminal.Odd, "note:"), terminal.Clean(n))
	}
}

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
