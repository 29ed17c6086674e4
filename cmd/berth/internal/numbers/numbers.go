// Package numbers makes the numbers that tables of results print from the trials
// of runs.
package numbers

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"

	"github.com/berth-eval/berth/cmd/berth/internal/stats"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
)

// level of all intervals.
const level = 0.95

// How many random permutations are drawn, and what they begin with, so that the same
// runs give the same numbers.
const (
	permutations = 10_000
	seed         = 1
)

// Options say what is compared, and how.
type Options struct {
	Cells []string // names or patterns of cells; none means all
	Rules Rules
	Force bool // also what the rules refuse
}

// cell is a cell of a run with its measured trials.
type cell struct {
	*Tally

	run     *Run
	digests map[string]string // of tasks
}

// Compare compares all pairs of cells of some runs. Fails if fewer than two cells
// are left, or if a cell has no measured trial.
func Compare(runs []Run, o *Options) (*output.Comparison, error) {
	res := &output.Comparison{Weigh: o.Rules.Weigh, Policy: summary.Policy, Accepted: accepted, Level: level, Seed: seed, Cells: []output.ComparedCell{}, Pairs: []output.ComparedPair{}}
	cells, err := collect(runs, o, res)
	if err != nil {
		return nil, err
	}
	if len(res.Marks) > 0 && !o.Force {
		return nil, Refusal(res.Marks)
	}
	for _, c := range cells {
		if c.Measured == 0 {
			return nil, fmt.Errorf("cell %s has no measured trial, so that there is nothing to compare. Leave it out with --cell%s", c.Name, resume(", or finish it with ", []*Run{c.run}, ""))
		}
		res.Cells = append(res.Cells, c.ComparedCell)
	}
	for i, a := range cells {
		for _, b := range cells[i+1:] {
			pair, err := compared(a, b, o)
			if err != nil {
				return nil, fmt.Errorf("cells %s and %s: %w", a.Name, b.Name, err)
			}
			res.Pairs = append(res.Pairs, *pair)
		}
	}
	Correct(res.Pairs)
	return res, nil
}

// collect counts the cells of the runs that are wanted, each run alone, and notes what
// is to be known about them.
func collect(runs []Run, o *Options, res *output.Comparison) (cells []*cell, err error) {
	var names []string
	raw := rawOf(runs)
	for n := range runs {
		j, err := Join(runs[n : n+1])
		if err != nil {
			return nil, err
		}
		res.Notes = append(res.Notes, j.Notes...)
		slugs, digests := make([]string, len(j.Cells)), make([]map[string]string, len(j.Cells))
		for i := range j.Cells {
			digests[i] = map[string]string{}
			if slugs[i] = j.Cells[i].Name; len(runs) > 1 {
				j.Cells[i].Name = runs[n].Name() + "/" + slugs[i]
			}
		}
		tallies, err := j.Tallies(raw, o.Rules, func(t *Trial, _ stats.Attempt, measured bool) {
			if measured {
				digests[t.Cell][t.TaskName] = t.TaskDigest
			}
		})
		if err != nil {
			return nil, err
		}
		refused := o.Rules.Refused(j)
		for i, t := range tallies {
			names = append(names, t.Name)
			if len(o.Cells) == 0 || matches(o.Cells, t.Name, slugs[i]) {
				t.Run = runs[n].Dir
				cells = append(cells, &cell{t, &runs[n], digests[i]})
				res.Marks = append(res.Marks, refused[i]...)
			}
		}
	}
	if len(cells) < 2 {
		return nil, fmt.Errorf("fewer than two cells are left to compare; there are: %s", strings.Join(names, ", "))
	}
	return cells, nil
}

// matches reports whether a name matches one of the patterns.
func matches(patterns []string, names ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, err := filepath.Match(p, name)
			return p == name || ok && err == nil
		})
	})
}

// number is nil for what cannot be computed.
func number(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

func interval(in stats.Interval) *output.Interval {
	if math.IsNaN(in.Low) {
		return nil
	}
	return &output.Interval{Low: in.Low, High: in.High, Method: string(in.Method)}
}

// without returns the sample of the cell without some tasks.
func (c *cell) without(tasks map[string]bool) *stats.Sample {
	left := map[string]bool{}
	for task := range c.digests {
		left[task] = !tasks[task]
	}
	return c.Sample.Only(left)
}

// compared compares two cells.
func compared(a, b *cell, o *Options) (*output.ComparedPair, error) {
	x, y := a.Sample, b.Sample
	changed, common := map[string]bool{}, 0
	for task, digest := range a.digests {
		switch other, ok := b.digests[task]; {
		case !ok:
		case other == digest || o.Force:
			common++
		default:
			changed[task] = true
		}
	}
	if len(changed) > 0 {
		if common == 0 {
			return nil, fmt.Errorf("the content of all %d tasks that both ran differs. Compare them by name with --force", len(changed))
		}
		x, y = a.without(changed), b.without(changed)
	}
	pair, err := Pair(a.Name, b.Name, x, y)
	if err != nil {
		return nil, err
	}
	pair.Changed, pair.Raw = len(changed), a.Raw || b.Raw
	return pair, nil
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// sentence describes the result of a comparison.
func sentence(p *output.ComparedPair) string {
	better, worse, sign := p.A, p.B, 1.0
	if p.Difference < 0 {
		better, worse, sign = p.B, p.A, -1
	}
	ran := fmt.Sprintf("%s × %d", terminal.Count(p.Tasks, "task", "tasks"), p.Repetitions[0])
	if p.Repetitions[0] != p.Repetitions[1] {
		ran += fmt.Sprintf(" and %d", p.Repetitions[1])
	}
	if left := p.Left[0] + p.Left[1] + p.Changed; left > 0 {
		ran += fmt.Sprintf(", %s left out", terminal.Count(left, "other", "others"))
	}
	if p.Difference == 0 {
		same := "score the same"
		if p.Raw {
			same = "have the same mean score"
		}
		return fmt.Sprintf("%s and %s %s (p = %s after Holm, %s)", p.A, p.B, same, P(p.Holm), ran)
	}
	within := ""
	if in := p.Interval; in != nil {
		low, high := in.Low*sign, in.High*sign
		within = fmt.Sprintf("95 %%: %s to %s; ", Value(min(low, high), p.Raw), Value(max(low, high), p.Raw))
	}
	how := "scores %s points higher than"
	if p.Raw {
		how = "has a mean score that is %s higher than that of"
	}
	return fmt.Sprintf("%s "+how+" %s (%sp = %s after Holm, %s)", better, Value(sign*p.Difference, p.Raw), worse, within, P(p.Holm), ran)
}

// P prints a p-value.
func P(p float64) string {
	if p < 0.001 {
		return "<0.001"
	}
	return fmt.Sprintf("%.2g", p)
}
