package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
)

// tableFlags are the flags of commands that print numbers.
type tableFlags struct {
	csv, markdown, latex bool
	force                bool
	weigh                string
	seed                 uint64
}

const (
	weighUsage = "give all categories, or all trials, the same `WEIGHT` in success rates: category or trials (default: as the experiment says)"
	seedUsage  = "`NUMBER` that bootstrap intervals and random permutations begin with"
)

func (f *tableFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.csv, "csv", false, "print the table as CSV, with fractions in full")
	fs.BoolVar(&f.markdown, "markdown", false, "print tables as Markdown")
	fs.BoolVar(&f.latex, "latex", false, "print tables as LaTeX")
	fs.BoolVar(&f.force, "force", false, "print numbers that are refused, with the reasons as marks")
	fs.StringVar(&f.weigh, "weigh", "", weighUsage)
	fs.Uint64Var(&f.seed, "seed", 1, seedUsage)
}

// format returns the chosen format.
func (f *tableFlags) format(p *terminal.Printer) (terminal.Format, error) {
	const asJSON terminal.Format = "json" // of the answer, not of a table
	var chosen []terminal.Format
	for _, flag := range []struct {
		format terminal.Format
		given  bool
	}{{asJSON, p.JSON}, {terminal.CSV, f.csv}, {terminal.Markdown, f.markdown}, {terminal.LaTeX, f.latex}} {
		if flag.given {
			chosen = append(chosen, flag.format)
		}
	}
	switch {
	case len(chosen) > 1:
		return terminal.Text, fmt.Errorf("--%s and --%s: choose one of them", chosen[0], chosen[1])
	case len(chosen) == 0 || p.JSON:
		return terminal.Text, nil
	}
	return chosen[0], nil
}

// rules returns the rules for tables of some runs.
func (f *tableFlags) rules(runs []numbers.Run) (numbers.Rules, error) {
	switch f.weigh {
	case "":
		return numbers.RulesOf(runs)
	case numbers.WeighCategory, "trials":
		rules, err := numbers.RulesOf(runs)
		if rules.Weigh = ""; f.weigh == numbers.WeighCategory {
			rules.Weigh = numbers.WeighCategory
		}
		if d := (*numbers.WeighError)(nil); errors.As(err, &d) {
			err = nil
		}
		return rules, err
	}
	return numbers.Rules{}, fmt.Errorf("--weigh: %q is neither category nor trials", f.weigh)
}

// tableOf says which table show prints.
type tableOf struct {
	tableFlags

	by     []string
	k      int
	pareto bool
	curve  bool
	filter *report.Filter
}

func (o *tableOf) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&o.by, "by", nil, "print the numbers of groups of trials by these `NAMES`: axes of the matrix, or words listed above")
	fs.IntVar(&o.k, "k", 0, "k of pass@k, all-k and best of k, a `NUMBER` (default: the repetitions that every task has)")
	fs.BoolVar(&o.pareto, "pareto", false, "print only the rows that no other one beats in success rate and cost")
	fs.BoolVar(&o.curve, "curve", false, "also print pass@k, all-k and best of k for k from 1")
	o.tableFlags.register(cmd)
}

// tableOnly are the flags that need numbers of groups.
var tableOnly = []string{"by", "k", "pareto", "curve", "csv", "markdown", "latex", "force", "weigh", "seed"}

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
	format, err := o.check(a.Printer)
	if err != nil {
		return err
	}
	runs, err := readRuns(names)
	if err != nil {
		return err
	}
	res, err := o.of(runs, &numbers.Wanted{Bootstrap: a.JSON, Force: o.force})
	if err != nil {
		return err
	}
	if done, err := a.Answer(res); done {
		return err
	}
	return printTable(a.Printer, res, format, o)
}

// watchTable prints the numbers of a run whenever the run changes, until it ends.
// What would be refused is printed with marks until all trials have ended.
func (a *app) watchTable(ctx context.Context, name string, o *tableOf) error {
	format, err := o.check(a.Printer)
	if err == nil && format != terminal.Text {
		err = fmt.Errorf("--watch prints text or --json. Leave --%s out", format)
	}
	if err != nil {
		return err
	}
	return a.watchRun(ctx, name, &report.Watcher{Filter: &report.Filter{}, Make: func(s *report.State, over bool) (v report.View, err error) {
		going := !over || !s.Complete()
		run := numbers.Run{Dir: s.Dir, Manifest: s.Manifest, Index: s.Index}
		res, err := o.of([]numbers.Run{run}, &numbers.Wanted{Bootstrap: a.JSON, Force: o.force || going, Going: going})
		if err != nil {
			return v, err
		}
		v.Document = res
		v.Text = func(p *terminal.Printer) {
			_ = printTable(p, res, format, o) // only other formats fail
			s.Progress(p)
		}
		return v, nil
	}})
}

// check returns the chosen format, and an error for a flag that fits no run.
func (o *tableOf) check(p *terminal.Printer) (terminal.Format, error) {
	if o.k < 0 {
		return terminal.Text, fmt.Errorf("--k: %d is not a number of trials", o.k)
	}
	return o.format(p)
}

// of makes the table of some runs.
func (o *tableOf) of(runs []numbers.Run, w *numbers.Wanted) (*output.Table, error) {
	j, err := numbers.Join(runs)
	if err != nil {
		return nil, err
	}
	if w.By = o.by; len(w.By) == 0 {
		w.By = []string{"cell"}
	}
	if w.Rules, err = o.rules(runs); err != nil {
		return nil, err
	}
	if w.Selected, err = chosenTrials(runs, o.filter.Expression); err != nil {
		return nil, err
	}
	w.K, w.Seed, w.Choice = o.k, o.seed, choice(o.filter.Expression)
	res, err := numbers.Table(j, w)
	if err != nil {
		return nil, err
	}
	if o.pareto {
		onFront(res)
	}
	if o.curve && !w.Going && !slices.ContainsFunc(res.Rows, func(r output.TableRow) bool { return len(r.Curve) > 0 }) {
		return nil, errors.New("--curve: there is no row of which every task has several measured trials. Raise repeat, or leave --curve out")
	}
	return res, nil
}

// chosenTrials returns which trials of several runs count; nil for all.
func chosenTrials(runs []numbers.Run, expression string) (func(*numbers.Trial) (bool, error), error) {
	if expression == "" {
		return nil, nil //nolint:nilnil // no choice is all trials
	}
	var manifests []*store.Manifest
	for i := range runs {
		manifests = append(manifests, runs[i].Manifest)
	}
	e, err := selection.Compile(expression, manifests...)
	if err != nil {
		return nil, err
	}
	for i := range runs {
		if err = e.Notes(runs[i].Manifest, runs[i].Dir); err != nil {
			return nil, err
		}
	}
	return func(t *numbers.Trial) (bool, error) {
		return e.Matches(&selection.Attempt{Manifest: t.Run.Manifest, Trial: t.TrialState, State: t.Accepted()})
	}, nil
}

// choice names the flag that selects trials; empty if all are selected.
func choice(expression string) string {
	if expression == "" {
		return ""
	}
	return selection.Flag
}

// onFront leaves the rows of the Pareto front, cheapest first.
func onFront(res *output.Table) {
	unknown := 0
	res.Rows = slices.DeleteFunc(res.Rows, func(r output.TableRow) bool {
		if r.Pareto == nil {
			unknown++
		}
		return r.Pareto == nil || !*r.Pareto
	})
	reward := slices.Index(res.By, "reward") // rows about different scores are not compared
	slices.SortStableFunc(res.Rows, func(x, y output.TableRow) int {
		if reward >= 0 && x.Values[reward] != y.Values[reward] {
			return cmp.Compare(x.Values[reward], y.Values[reward])
		}
		return cmp.Compare(*x.CostUSD.Mean, *y.CostUSD.Mean)
	})
	if unknown > 0 {
		res.Notes = append(res.Notes, terminal.Count(unknown, "row is", "rows are")+" not compared, because the cost of a trial is not known")
	}
}
