package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

const weighUsage = "category: all categories weigh the same in success rates; trials: all trials do; default: as the experiment says"

func (f *tableFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.csv, "csv", false, "print the table as CSV, with fractions in full")
	fs.BoolVar(&f.markdown, "markdown", false, "print tables as Markdown")
	fs.BoolVar(&f.latex, "latex", false, "print tables as LaTeX")
	fs.BoolVar(&f.force, "force", false, "print numbers that are refused, with the reasons as marks")
	fs.StringVar(&f.weigh, "weigh", "", weighUsage)
	fs.Uint64Var(&f.seed, "seed", 1, "seed of bootstrap intervals and random permutations")
	cmd.MarkFlagsMutuallyExclusive("csv", "markdown", "latex")
}

// format returns the chosen format.
func (f *tableFlags) format(p *terminal.Printer) (terminal.Format, error) {
	format := terminal.Text
	switch {
	case f.csv:
		format = terminal.CSV
	case f.markdown:
		format = terminal.Markdown
	case f.latex:
		format = terminal.LaTeX
	}
	if p.JSON && format != terminal.Text {
		return format, fmt.Errorf("--json and --%s: choose one of them", format)
	}
	return format, nil
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
	fs.StringSliceVar(&o.by, "by", nil, "print the numbers of groups of trials by these axes or `NAMES`")
	fs.IntVar(&o.k, "k", 0, "k of pass@k, all-k and best of k; default: the repetitions that every task has")
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
	format, err := o.format(a.Printer)
	if err != nil {
		return err
	}
	if o.k < 0 {
		return fmt.Errorf("--k: %d is not a number of trials", o.k)
	}
	runs, err := readRuns(names)
	if err != nil {
		return err
	}
	j, err := numbers.Join(runs)
	if err != nil {
		return err
	}
	w := numbers.Wanted{By: o.by, K: o.k, Seed: o.seed, Bootstrap: a.JSON, Force: o.force}
	if len(w.By) == 0 {
		w.By = []string{"cell"}
	}
	if w.Rules, err = o.rules(runs); err != nil {
		return err
	}
	if w.Selected, err = chosenTrials(runs, o.filter); err != nil {
		return err
	}
	w.Choice = o.filter.Flags()
	res, err := numbers.Table(j, &w)
	if err != nil {
		return err
	}
	if o.pareto {
		onFront(res)
	}
	if o.curve && !slices.ContainsFunc(res.Rows, func(r output.TableRow) bool { return len(r.Curve) > 0 }) {
		return errors.New("--curve: there is no row of which every task has several measured trials. Raise repeat, or leave --curve out")
	}
	if done, err := a.Answer(res); done {
		return err
	}
	return a.printTable(res, format, o)
}

// chosenTrials returns which trials of several runs count; nil for all.
func chosenTrials(runs []numbers.Run, f *report.Filter) (func(*numbers.Trial) (bool, error), error) {
	if !f.Set() {
		return nil, nil //nolint:nilnil // no choice is all trials
	}
	var manifests []*store.Manifest
	for i := range runs {
		manifests = append(manifests, runs[i].Manifest)
	}
	var e *selection.Expression
	if f.Expression != "" {
		var err error
		if e, err = selection.Compile(f.Expression, manifests...); err != nil {
			return nil, err
		}
	}
	rest := *f
	rest.Expression = ""
	chosen := map[*store.TrialState]bool{}
	for i := range runs {
		for _, t := range report.Select(runs[i].Manifest, runs[i].Index, &rest) {
			chosen[t] = true
		}
	}
	return func(t *numbers.Trial) (bool, error) {
		if !chosen[t.TrialState] || e == nil {
			return chosen[t.TrialState], nil
		}
		return e.Matches(&selection.Attempt{Manifest: t.Run.Manifest, Trial: t.TrialState, State: t.Accepted()})
	}, nil
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
	slices.SortStableFunc(res.Rows, func(x, y output.TableRow) int { return cmp.Compare(*x.CostUSD.Mean, *y.CostUSD.Mean) })
	if unknown > 0 {
		res.Notes = append(res.Notes, terminal.Count(unknown, "row is", "rows are")+" not compared, because the cost of a trial is not known")
	}
}

// printTable prints a table with what is to be known about it.
func (a *app) printTable(res *output.Table, format terminal.Format, o *tableOf) error {
	if format == terminal.CSV {
		t := flat(res)
		if err := t.WriteAs(a.Printer, format); err != nil {
			return err
		}
		a.Remarks(format, remarks(res, o.pareto))
		return nil
	}
	rates := rateTable(res)
	if err := rates.WriteAs(a.Printer, format); err != nil {
		return err
	}
	if t := spendTable(res); t != nil {
		fmt.Fprintln(a.Out)
		if err := t.WriteAs(a.Printer, format); err != nil {
			return err
		}
	}
	if t := curveTable(res); t != nil && o.curve {
		fmt.Fprintln(a.Out)
		if err := t.WriteAs(a.Printer, format); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.Out)
	a.Remarks(format, remarks(res, o.pareto))
	return nil
}

// remarks say how the numbers of a table were made.
func remarks(res *output.Table, pareto bool) (lines []string) {
	for _, m := range res.Marks {
		lines = append(lines, "mark: "+m)
	}
	for _, n := range res.Notes {
		lines = append(lines, "note: "+n)
	}
	rate := "success rate: mean score of the measured trials"
	if res.Weigh != "" {
		rate += "; all categories weigh the same"
	}
	lines = append(lines, rate,
		"±: standard error over repetitions; sd: population standard deviation of the repetitions' means; 95 %: the tasks as a sample",
		"counted: "+res.Accepted)
	if pareto {
		lines = append(lines, "only rows of the Pareto front: no other one has at least the same success rate at no more mean cost")
	}
	return lines
}

// heads begins a table with the columns of what rows differ in.
func heads(res *output.Table, more ...string) terminal.Table {
	t := terminal.Table{Above: len(res.By)}
	for _, by := range res.By {
		t.Head, t.Right = append(t.Head, terminal.Clean(by)), append(t.Right, false)
	}
	for _, m := range more {
		t.Head, t.Right = append(t.Head, m), append(t.Right, true)
	}
	return t
}

func values(r *output.TableRow, more ...string) (cells []string) {
	for _, v := range r.Values {
		cells = append(cells, terminal.Clean(v))
	}
	return append(cells, more...)
}

// rateTable is the table of success.
func rateTable(res *output.Table) terminal.Table {
	k, timeouts, exposed, budget := 0, false, false, false
	for i := range res.Rows {
		r := &res.Rows[i]
		k, timeouts, exposed, budget = max(k, r.K), timeouts || r.Timeouts > 0, exposed || r.Exposed > 0, budget || r.Budget > 0
	}
	t := heads(res, "measured", "tasks", "reps", "success rate", "95 %", "pass@1")
	add := func(wanted bool, name string) {
		if wanted {
			t.Head, t.Right = append(t.Head, name), append(t.Right, true)
		}
	}
	add(k > 0, "pass@k")
	add(k > 0, "all-k")
	add(k > 0, "best of k")
	add(true, "solved always/sometimes/never")
	add(true, "timeouts")
	add(budget, "ended by budget")
	add(exposed, "exposed")
	for i := range res.Rows {
		r := &res.Rows[i]
		rate, in, solved := share(r.Mean), between(r.Interval), fmt.Sprintf("%d/%d/%d", len(r.Always), len(r.Sometimes), len(r.Never))
		if r.SE != nil {
			rate += fmt.Sprintf(" ± %s (sd %s)", percent(*r.SE), percent(*r.SD))
		}
		if r.Raw {
			rate, in = asItIs(r)
			solved = "–"
		}
		row := values(r, fmt.Sprintf("%d of %d", r.Measured, r.Planned), strconv.Itoa(r.Tasks), strconv.Itoa(r.Repetitions), rate, in, share(r.PassAt1))
		if k > 0 {
			row = append(row, ofK(r.PassAtK, r.K), ofK(r.AllK, r.K), ofK(r.BestOfK, r.K))
		}
		row = append(row, solved, fmt.Sprintf("%d of %d", r.Timeouts, r.Measured))
		if budget {
			row = append(row, fmt.Sprintf("%d of %d", r.Budget, r.Measured))
		}
		if exposed {
			row = append(row, fmt.Sprintf("%d of %d", r.Exposed, r.Measured))
		}
		t.Row(row...)
	}
	return t
}

// asItIs prints the mean of a score with values outside 0 to 1, and its interval.
func asItIs(r *output.TableRow) (rate, in string) {
	text := func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
	rate, in = "–", "–"
	if r.Mean != nil {
		rate = text(*r.Mean)
	}
	if r.SE != nil {
		rate += fmt.Sprintf(" ± %s (sd %s)", text(*r.SE), text(*r.SD))
	}
	if r.Interval != nil {
		in = text(r.Interval.Low) + " to " + text(r.Interval.High)
	}
	return rate, in
}

// spendTable is the table of what trials used; nil if nothing was used.
func spendTable(res *output.Table) *terminal.Table {
	if !slices.ContainsFunc(res.Rows, func(r output.TableRow) bool {
		return r.Measured > 0 && (*r.Tokens.Mean > 0 || *r.Steps.Mean > 0 || *r.AgentTime.Mean > 0)
	}) {
		return nil
	}
	t := heads(res, "tokens", "USD", "USD per run", "steps", "agent time [s]")
	for i := range res.Rows {
		r := &res.Rows[i]
		perRun := "unknown"
		if r.CostPerRun != nil {
			perRun = fmt.Sprintf("%.4f", *r.CostPerRun)
		}
		t.Row(values(r, used(r, &r.Tokens, 0), used(r, &r.CostUSD, 4), perRun, used(r, &r.Steps, 1), used(r, &r.AgentTime, 1))...)
	}
	for i := range t.Head {
		if i >= len(res.By) && t.Head[i] != "USD per run" {
			t.Head[i] += ": mean / median / per success"
		}
	}
	return &t
}

func used(r *output.TableRow, m *output.Measure, digits int) string {
	if m.Mean == nil {
		return "unknown"
	}
	per := "–"
	if m.PerSuccess != nil {
		per = strconv.FormatFloat(*m.PerSuccess, 'f', digits, 64)
	}
	s := fmt.Sprintf("%s / %s / %s", strconv.FormatFloat(*m.Mean, 'f', digits, 64), strconv.FormatFloat(*m.Median, 'f', digits, 64), per)
	if m.N < r.Measured {
		s += fmt.Sprintf(" (of %d)", m.N)
	}
	return s
}

// curveTable is the table of pass@k, all-k and best-of-k over k; nil if every task
// ran once.
func curveTable(res *output.Table) *terminal.Table {
	const most = 20 // columns; all of them are in the JSON
	k := 0
	for i := range res.Rows {
		k = max(k, len(res.Rows[i].Curve))
	}
	if k == 0 {
		return nil
	}
	k = min(k, most)
	t := heads(res)
	t.Head, t.Right = append(t.Head, "of k trials"), append(t.Right, false)
	for n := range k {
		t.Head, t.Right = append(t.Head, "k = "+strconv.Itoa(n+1)), append(t.Right, true)
	}
	for i := range res.Rows {
		r := &res.Rows[i]
		for _, line := range []struct {
			name string
			of   func(*output.AtK) float64
		}{
			{"pass@k", func(at *output.AtK) float64 { return at.PassAtK }},
			{"all-k", func(at *output.AtK) float64 { return at.AllK }},
			{"best of k", func(at *output.AtK) float64 { return at.BestOfK }},
		} {
			row := values(r, line.name)
			for n := range k {
				cell := "–"
				if n < len(r.Curve) {
					cell = percent(line.of(&r.Curve[n]))
				}
				row = append(row, cell)
			}
			t.Row(row...)
		}
	}
	return &t
}

// flat is the table with a number in each column, for CSV.
func flat(res *output.Table) terminal.Table {
	t := heads(res, strings.Fields("planned measured tasks repetitions success_rate se_over_repetitions population_sd_over_repetitions "+
		"cluster_robust_se low_95 high_95 interval_method pass_at_1 k pass_at_k all_k best_of_k tasks_always_solved tasks_sometimes_solved tasks_never_solved "+
		"timeouts ended_by_budget exposed tokens_mean tokens_median tokens_per_success cost_usd_n cost_usd_mean cost_usd_median cost_usd_per_success "+
		"cost_usd_per_run steps_mean steps_median steps_per_success agent_seconds_mean agent_seconds_median agent_seconds_per_success")...)
	whole := strconv.Itoa
	for i := range res.Rows {
		r := &res.Rows[i]
		in := output.Interval{}
		low, high := "", ""
		if r.Interval != nil {
			in = *r.Interval
			low, high = full(&in.Low), full(&in.High)
		}
		always, sometimes, never := whole(len(r.Always)), whole(len(r.Sometimes)), whole(len(r.Never))
		if r.Raw {
			always, sometimes, never = "", "", ""
		}
		row := values(r, whole(r.Planned), whole(r.Measured), whole(r.Tasks), whole(r.Repetitions), full(r.Mean), full(r.SE), full(r.SD),
			full(r.ClusterSE), low, high, in.Method, full(r.PassAt1), whole(r.K), full(r.PassAtK), full(r.AllK), full(r.BestOfK),
			always, sometimes, never, whole(r.Timeouts), whole(r.Budget), whole(r.Exposed))
		row = append(row, three(&r.Tokens)...)
		row = append(append(row, whole(r.CostUSD.N)), three(&r.CostUSD)...)
		row = append(append(row, full(r.CostPerRun)), three(&r.Steps)...)
		t.Row(append(row, three(&r.AgentTime)...)...)
	}
	return t
}

func three(m *output.Measure) []string {
	return []string{full(m.Mean), full(m.Median), full(m.PerSuccess)}
}

// full prints a number in full; empty for one that is not known.
func full(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'g', -1, 64)
}

func share(x *float64) string {
	if x == nil {
		return "–"
	}
	return percent(*x)
}

func ofK(x *float64, k int) string {
	if x == nil {
		return "–"
	}
	return atK(*x, k)
}
