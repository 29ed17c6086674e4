package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
)

// tableFlags are the flags of commands that print numbers.
type tableFlags struct {
	table string
	force bool
}

func (f *tableFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.table, "table", "", "print the table in this `FORMAT`: csv, with fractions in full, markdown or latex")
	fs.BoolVar(&f.force, "force", false, "print numbers that are refused, with the reasons as marks")
}

// format returns the chosen format.
func (f *tableFlags) format(p *terminal.Printer) (terminal.Format, error) {
	switch format := terminal.Format(f.table); format {
	case terminal.Text:
		return format, nil
	case terminal.CSV, terminal.Markdown, terminal.LaTeX:
		if p.JSON {
			return terminal.Text, errors.New("--json and --table: choose one of them")
		}
		return format, nil
	default:
		return terminal.Text, fmt.Errorf("--table is csv, markdown or latex, and not %q", f.table)
	}
}

// tableOf says which table show prints.
type tableOf struct {
	tableFlags

	by     []string
	k      usage.Count
	filter *report.Filter
}

func (o *tableOf) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&o.by, "by", nil, "print the numbers of groups of trials by these `NAMES`: axes of the matrix, or words listed above")
	fs.Var(&o.k, "k", "k of pass@k, all-k and best of k, a `NUMBER` (default: the repetitions that every task has)")
	o.tableFlags.register(cmd)
}

// tableOnly are the flags that need numbers of groups.
var tableOnly = []string{"by", "k", "table", "force"}

// wanted reports whether numbers of groups are wanted: there is a flag for them, or
// there are several runs.
func (o *tableOf) wanted(cmd *cobra.Command, args []string) (bool, error) {
	several := false
	if len(args) > 1 { // the second argument may be a trial as well
		_, err := report.FindRun(args[1])
		several = err == nil
	}
	for _, name := range tableOnly {
		if !cmd.Flags().Changed(name) {
			continue
		}
		if len(args) == 0 || len(args) > 1 && !several {
			return false, fmt.Errorf("--%s needs one run or several, and no trial. Example: berth show last --by cell", name)
		}
		return true, nil
	}
	return several, nil
}

// showTable prints the numbers of runs in groups.
func (a *app) showTable(names []string, o *tableOf) error {
	format, err := o.format(a.Printer)
	if err != nil {
		return err
	}
	runs, err := readRuns(names)
	if err != nil {
		return err
	}
	j, err := numbers.Join(runs)
	if err != nil {
		return err
	}
	w := &numbers.Wanted{By: o.by, K: int(o.k), Force: o.force, Select: o.filter.Expression}
	if len(w.By) == 0 {
		w.By = []string{"cell"}
	}
	if w.Rules, err = numbers.RulesOf(runs); err != nil {
		return err
	}
	res, err := numbers.Table(j, w)
	if err != nil {
		return err
	}
	if done, err := a.Answer(res); done {
		return err
	}
	return printTable(a.Printer, res, format)
}
