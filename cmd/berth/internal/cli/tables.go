package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
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

// printTable prints a table with what is to be known about it.
func printTable(p *terminal.Printer, res *output.Table, format terminal.Format) error {
	if format == terminal.CSV {
		t := flat(res)
		if err := t.WriteAs(p, format); err != nil {
			return err
		}
		p.Remarks(format, remarks(res))
		return nil
	}
	rates := rateTable(res)
	if err := rates.WriteAs(p, format); err != nil {
		return err
	}
	if t := spendTable(res); t != nil {
		fmt.Fprintln(p.Out)
		if err := t.WriteAs(p, format); err != nil {
			return err
		}
	}
	fmt.Fprintln(p.Out)
	p.Remarks(format, remarks(res))
	return nil
}

// remarks say how the numbers of a table were made.
func remarks(res *output.Table) (lines []string) {
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
		rate, around := success(&r.Rates)
		solved, best := "–", "–"
		if r.Instead == "" {
			best = ofK(r.BestOfK, r.K, r.Raw)
		}
		if r.PassAt1 != nil {
			solved = fmt.Sprintf("%d/%d/%d", len(r.Always), len(r.Sometimes), len(r.Never))
		}
		row := values(r, fmt.Sprintf("%d of %d", r.Measured, r.Planned), strconv.Itoa(r.Tasks), strconv.Itoa(r.Repetitions), rate, around, numbers.Share(r.PassAt1, false))
		if k > 0 {
			row = append(row, ofK(r.PassAtK, r.K, false), ofK(r.AllK, r.K, false), best)
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
		if r.PassAt1 == nil {
			always, sometimes, never = "", "", ""
		}
		row := values(r, whole(r.Planned), whole(r.Measured), whole(r.Tasks), whole(r.Repetitions), full(r.Mean), full(r.SE), full(r.SD),
			full(r.ClusterSE), low, high, in.Method, full(r.PassAt1), positive(r.K), full(r.PassAtK), full(r.AllK), full(r.BestOfK),
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

// success prints the success rate with its spread, and its interval.
func success(r *output.Rates) (rate, around string) {
	if r.Instead != "" {
		return r.Instead, "–"
	}
	rate = numbers.Share(r.Mean, r.Raw)
	if r.SE != nil {
		rate += fmt.Sprintf(" ± %s (sd %s)", numbers.Value(*r.SE, r.Raw), numbers.Value(*r.SD, r.Raw))
	}
	return rate, numbers.Between(r.Interval, r.Raw, numbers.Value)
}

func ofK(x *float64, k int, raw bool) string {
	if x == nil {
		return "–"
	}
	return fmt.Sprintf("%s (k = %d)", numbers.Value(*x, raw), k)
}

// positive is a number for CSV; empty: there is none.
func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
