package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
)

func (a *app) compareCommand() *cobra.Command {
	var o numbers.Options
	var f tableFlags
	var g gateFlags
	cmd := &cobra.Command{
		Use:   "compare RUN [RUN ...]",
		Short: "Compare the cells of one run or of several",
		Long: `Prints the success rate of each cell with its spread, and compares all pairs of
cells on the tasks that both ran. docs/statistics.md defines each number, and
says which are refused unless you say --force.

With --baseline, the command says instead which tasks got worse, cell by cell:
those that the baseline always solved and the run does not always, and those
that it solved once and the run never does. With --require "no new failure", the
exit code is 1 if there is one.`,
		Example: "  berth compare last\n  berth compare last --cell 'or*' --cell nop\n  berth compare last --table latex\n  berth compare RUN OTHER\n  berth compare RUN --baseline MAIN --require \"no new failure\" --confirm 3",
		Args:    cobra.MinimumNArgs(1),

		RunE: func(cmd *cobra.Command, args []string) error {
			c := &comparison{&o, &f}
			if g.baseline != "" {
				return a.gate(cmd.Context(), args, &g, c)
			}
			for _, flag := range []string{"require", "confirm", "junit"} {
				if cmd.Flags().Changed(flag) {
					return fmt.Errorf("--%s needs --baseline RUN", flag)
				}
			}
			return a.compare(args, c)
		},
	}
	cmd.Flags().StringArrayVar(&o.Cells, "cell", nil, "compare only this `CELL`, a name or a pattern like 'a*'; may be repeated")
	f.register(cmd)
	g.register(cmd.Flags())
	return cmd
}

// comparison says what compare prints.
type comparison struct {
	options *numbers.Options
	flags   *tableFlags
}

func (a *app) compare(names []string, c *comparison) error {
	format, err := c.flags.format(a.Printer)
	if err != nil {
		return err
	}
	runs, err := readRuns(names)
	if err != nil {
		return err
	}
	c.options.Force = c.flags.force
	if c.options.Rules, err = numbers.RulesOf(runs); err != nil {
		return err
	}
	res, err := numbers.Compare(runs, c.options)
	if err != nil {
		return err
	}
	if done, err := a.Answer(res); done {
		return err
	}
	return a.printComparison(res, format)
}

func (a *app) printComparison(res *output.Comparison, format terminal.Format) error {
	if format == terminal.CSV {
		t := flatPairs(res)
		if err := t.WriteAs(a.Printer, format); err != nil {
			return err
		}
		a.Remarks(format, comparedRemarks(res))
		return nil
	}
	cells, pairs := comparedCells(res), comparedPairs(res)
	for _, t := range []*terminal.Table{&cells, &pairs} {
		if err := t.WriteAs(a.Printer, format); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
	}
	for i := range res.Pairs {
		a.Remarks(format, []string{res.Pairs[i].Sentence})
	}
	a.Remarks(format, comparedRemarks(res))
	return nil
}

// comparedRemarks say how the numbers were made, and what to know about them.
func comparedRemarks(res *output.Comparison) (lines []string) {
	for _, m := range res.Marks {
		lines = append(lines, "mark: "+m)
	}
	for _, n := range res.Notes {
		lines = append(lines, "note: "+n)
	}
	for i := range res.Cells {
		c := &res.Cells[i]
		if left := c.Planned - c.Measured; left > 0 {
			lines = append(lines, fmt.Sprintf("note: %s: %d of %d planned trials were not measured", c.Name, left, c.Planned))
		}
		if c.Exposed > 0 {
			lines = append(lines, fmt.Sprintf("note: %s: %d of %d results are exposed, and the success rate counts them; %d of %d planned trials passed and are checked",
				c.Name, c.Exposed, c.Measured, c.PassedChecked, c.Planned))
		}
	}
	if slices.ContainsFunc(res.Cells, func(c output.ComparedCell) bool { return c.Raw }) {
		lines = append(lines, "note: the score has values below 0 or above 1: success rates are its means as they are, and not in percent")
	}
	if res.Weigh != "" {
		lines = append(lines, "note: all categories weigh the same in success rates; in the comparison of pairs all tasks do")
	}
	return append(lines, "±: standard error over repetitions; sd: population standard deviation of the repetitions' means; 95 %: the tasks as a sample",
		"counted: "+res.Accepted)
}

// readRuns finds and reads runs.
func readRuns(names []string) ([]numbers.Run, error) {
	dirs := make([]string, len(names))
	for i, name := range names {
		var err error
		if dirs[i], err = report.FindRun(name); err != nil {
			return nil, err
		}
	}
	return numbers.Read(dirs...)
}

func comparedCells(res *output.Comparison) terminal.Table {
	k := 0
	for i := range res.Cells {
		k = max(k, res.Cells[i].K)
	}
	t := terminal.Table{Head: []string{"cell", "tasks", "reps", "success rate", "95 %", "pass@1"}, Right: []bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true}, Above: 1}
	if k > 1 {
		t.Head = append(t.Head, "pass@k", "all-k")
	}
	for i := range res.Cells {
		c := &res.Cells[i]
		rate, around := success(&c.Rates)
		row := []string{terminal.Clean(c.Name), strconv.Itoa(c.Tasks), strconv.Itoa(c.Repetitions), rate, around, numbers.Share(c.PassAt1, false)}
		if k > 1 {
			row = append(row, ofK(c.PassAtK, c.K, false), ofK(c.AllK, c.K, false))
		}
		t.Row(row...)
	}
	return t
}

func comparedPairs(res *output.Comparison) terminal.Table {
	t := terminal.Table{
		Head: []string{"pair", "tasks", "difference", "95 %", "p", "p (Holm)", "solved by one only"}, Right: []bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true}, Above: 1,
	}
	undecided := undecided(res)
	for i := range res.Pairs {
		p := &res.Pairs[i]
		solved := fmt.Sprintf("%d and %d", len(p.OnlyA), len(p.OnlyB))
		if undecided[p.A] || undecided[p.B] {
			solved = "–"
		}
		t.Row(terminal.Clean(p.A+" – "+p.B), strconv.Itoa(p.Tasks), numbers.Difference(p.Difference, p.Raw), numbers.Between(p.Interval, p.Raw, numbers.Value), numbers.P(p.P), numbers.P(p.Holm), solved)
	}
	return t
}

// undecided are the cells of which it is not known which tasks they solved.
func undecided(res *output.Comparison) map[string]bool {
	names := map[string]bool{}
	for i := range res.Cells {
		names[res.Cells[i].Name] = res.Cells[i].PassAt1 == nil
	}
	return names
}

// flatPairs is the table of pairs with a number in each column, for CSV.
func flatPairs(res *output.Comparison) terminal.Table {
	t := terminal.Table{Head: strings.Fields("a b tasks tasks_of_a_only tasks_of_b_only tasks_that_changed mean_a mean_b difference low_95 high_95 test permutations p p_holm solved_by_a_only solved_by_b_only")}
	whole := strconv.Itoa
	for i := range t.Head {
		t.Right = append(t.Right, i > 1)
	}
	undecided := undecided(res)
	for i := range res.Pairs {
		p := &res.Pairs[i]
		low, high, _ := bounds(p.Interval)
		onlyA, onlyB := whole(len(p.OnlyA)), whole(len(p.OnlyB))
		if undecided[p.A] || undecided[p.B] {
			onlyA, onlyB = "", ""
		}
		t.Row(terminal.Clean(p.A), terminal.Clean(p.B), whole(p.Tasks), whole(p.Left[0]), whole(p.Left[1]), whole(p.Changed), full(&p.Means[0]), full(&p.Means[1]),
			full(&p.Difference), low, high, p.Test, positive(p.Permutations), full(&p.P), full(&p.Holm), onlyA, onlyB)
	}
	return t
}

func bounds(in *output.Interval) (low, high, method string) {
	if in == nil {
		return "", "", ""
	}
	return full(&in.Low), full(&in.High), in.Method
}
