package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Filter selects and sorts the trials of a run. Empty fields select all.
type Filter struct {
	Expression string // see package selection
	Sort       string // one of Sorts
	All        bool   // print all that are selected

	chosen map[*store.TrialState]bool // by Expression
}

// Sorts are what trials can be sorted by; numbers begin with the largest.
var Sorts = []string{"task", "cell", "outcome", "score", "time", "cost", "tokens"}

// Set reports whether the filter selects or sorts anything.
func (f *Filter) Set() bool { return f.Sort+f.Expression != "" }

// Check returns an error for an order that there is not.
func (f *Filter) Check() error {
	if f.Sort != "" && !slices.Contains(Sorts, f.Sort) {
		return fmt.Errorf("--sort: trials cannot be sorted by %q. Choose one of %s", f.Sort, strings.Join(Sorts, ", "))
	}
	return nil
}

// Choose evaluates the expression for the trials of the run in dir. Fails for a
// mistake in it. Call it before Select.
func (f *Filter) Choose(dir string, m *store.Manifest, x *store.Index) error {
	if f.Expression == "" {
		return nil
	}
	e, err := selection.Compile(f.Expression, m)
	if err == nil {
		err = e.Notes(m, dir)
	}
	if err != nil {
		return err
	}
	trials, err := e.Trials(m, x)
	f.chosen = map[*store.TrialState]bool{}
	for _, t := range trials {
		f.chosen[t] = true
	}
	return err
}

// Select returns the trials of a run that are selected, in the order that f wants.
func Select(m *store.Manifest, x *store.Index, f *Filter) []*store.TrialState {
	var trials []*store.TrialState
	for _, t := range x.Trials {
		if f.chosen == nil || f.chosen[t] {
			trials = append(trials, t)
		}
	}
	slices.SortStableFunc(trials, func(a, b *store.TrialState) int {
		switch f.Sort {
		case "task":
			return cmp.Compare(a.Task, b.Task)
		case "cell":
			return cmp.Compare(m.Cells[a.Cell].Key, m.Cells[b.Cell].Key)
		case "outcome":
			return slices.Index(record.Outcomes, a.Outcome()) - slices.Index(record.Outcomes, b.Outcome())
		}
		return cmp.Compare(number(b, f.Sort), number(a, f.Sort))
	})
	return trials
}

// number returns what a trial is sorted by; -1 if it has no such number.
func number(t *store.TrialState, by string) float64 {
	acc := t.Accepted()
	s, _ := t.Spend()
	switch {
	case by == "score" && acc != nil && acc.Result.Score != nil:
		return *acc.Result.Score
	case by == "time" && acc != nil:
		return acc.Result.End.Sub(acc.Result.Start).Seconds()
	case by == "cost" && s.CostUSD != nil:
		return *s.CostUSD
	case by == "tokens":
		return float64(s.Tokens)
	}
	return -1
}

// spent returns the cells of a trial in the columns of cost and tokens.
func spent(s *store.Spend) (cost, tokens string) {
	if s.Tokens == 0 {
		return "", ""
	}
	cost, tokens = "unknown", fmt.Sprint(s.Tokens)
	if s.CostUSD != nil {
		cost = fmt.Sprintf("%.4f", *s.CostUSD)
		if s.Unpriced {
			cost = ">" + cost
		}
	}
	if s.Estimated > 0 {
		tokens = "~" + tokens
	}
	return cost, tokens
}
