package cli

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// maxUnmeasured is the share of a cell's trials without a measurement from which
// on its numbers are not printed.
const maxUnmeasured = 0.02

func (a *app) compareCommand() *cobra.Command {
	o := numbers.Options{MaxInfrastructure: maxUnmeasured}
	force := false
	cmd := &cobra.Command{
		Use:   "compare RUN [RUN ...]",
		Short: "Compare the cells of one run or of several",
		Long: `Prints the success rate of each cell with its spread, and compares all pairs of
cells on the tasks that both ran.

The success rate is the mean score of all measured trials. ± is the standard
error over repetitions, with the population standard deviation behind it. The
interval takes the tasks as a sample of all tasks, and repetitions of a task are
not counted as independent. pass@k is the share of tasks that at least one of k
trials solves, and all-k the share that all of them solve.

Pairs are compared task by task: with McNemar's exact test if each task ran once,
else with a permutation test of the signs of the tasks' differences. p is
corrected for all pairs (Holm).

A cell is refused if more than 2 % of its planned trials were not measured.
Tasks of the same name whose content differs between runs are left out.`,
		Example: "  berth compare last\n  berth compare last --cell 'or*' --cell nop\n  berth compare RUN OTHER",
		Args:    cobra.MinimumNArgs(1),

		ValidArgsFunction: func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
			return completeRun(cmd, nil, begin)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if force {
				o.MaxInfrastructure = 1
			}
			return a.compare(args, &o)
		},
	}
	cmd.Flags().StringArrayVar(&o.Cells, "cell", nil, "compare only this cell (a name or a pattern like 'a*'); may be repeated")
	cmd.Flags().BoolVar(&o.ByName, "by-name", false, "take tasks of the same name for the same, whatever their content")
	cmd.Flags().BoolVar(&force, "force", false, "print the numbers of cells that were not measured in full")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of bootstrap intervals and random permutations")
	return cmd
}

func (a *app) compare(names []string, o *numbers.Options) error {
	runs, err := readRuns(names)
	if err != nil {
		return err
	}
	res, err := numbers.Compare(runs, o)
	if err != nil {
		return err
	}
	if done, err := a.Answer(res); done {
		return err
	}
	a.comparedCells(res)
	a.Printf("\n")
	a.comparedPairs(res)
	a.Printf("\n")
	for i := range res.Pairs {
		a.Printf("%s\n", terminal.Clean(res.Pairs[i].Sentence))
	}
	for i := range res.Cells {
		c := &res.Cells[i]
		if left := c.Planned - c.Measured; left > 0 {
			a.Printf("%s %s\n", terminal.Paint(a.Color, terminal.Odd, "note:"), terminal.Clean(fmt.Sprintf("%s: %d of %d planned trials were not measured", c.Name, left, c.Planned)))
		}
		if c.Exposed > 0 {
			a.Printf("%s %s\n", terminal.Paint(a.Color, terminal.Odd, "note:"), terminal.Clean(fmt.Sprintf("%s: %d of %d results are exposed", c.Name, c.Exposed, c.Measured)))
		}
	}
	return nil
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

func (a *app) comparedCells(res *output.Comparison) {
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
		rate := percent(c.Mean)
		if c.SE != nil {
			rate += fmt.Sprintf(" ± %s (sd %s)", percent(*c.SE), percent(*c.SD))
		}
		row := []string{terminal.Clean(c.Name), strconv.Itoa(c.Tasks), strconv.Itoa(c.Repetitions), rate, between(c.Interval), percent(c.PassAt1)}
		if k > 1 {
			row = append(row, atK(c.PassAtK, c.K), atK(c.AllK, c.K))
		}
		t.Row(row...)
	}
	t.Write(a.Printer)
}

func (a *app) comparedPairs(res *output.Comparison) {
	t := terminal.Table{
		Head: []string{"pair", "tasks", "difference", "95 %", "p", "p (Holm)", "solved by one only"}, Right: []bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true}, Above: 1,
	}
	for i := range res.Pairs {
		p := &res.Pairs[i]
		t.Row(terminal.Clean(p.A+" – "+p.B), strconv.Itoa(p.Tasks), difference(p.Difference), between(p.Interval), numbers.P(p.P), numbers.P(p.Holm),
			fmt.Sprintf("%d and %d", len(p.OnlyA), len(p.OnlyB)))
	}
	t.Write(a.Printer)
}

// percent prints a fraction in percent.
func percent(x float64) string {
	if math.Abs(x) < 0.0005 {
		x = 0
	}
	return fmt.Sprintf("%.1f", 100*x)
}

func between(in *output.Interval) string {
	if in == nil {
		return "–"
	}
	return fmt.Sprintf("%s to %s", percent(in.Low), percent(in.High))
}

func atK(x float64, k int) string {
	if k == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (k = %d)", percent(x), k)
}

// difference prints a difference in points of a percent.
func difference(x float64) string {
	if s := percent(x); s == "0.0" || x < 0 {
		return s
	}
	return "+" + percent(x)
}
