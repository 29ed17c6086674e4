package report

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/suggest"
)

// Filter selects and sorts the trials of a run. Empty fields select all.
type Filter struct {
	Outcomes   []string
	Cell, Task string // names or patterns
	Sort       string // one of Sorts
	Expression string // see package selection
	All        bool   // print all that are selected

	chosen map[*store.TrialState]bool // by Expression
}

// Sorts are what trials can be sorted by; numbers begin with the largest.
var Sorts = []string{"task", "cell", "outcome", "score", "time", "cost", "tokens"}

// Set reports whether the filter selects or sorts anything.
func (f *Filter) Set() bool { return len(f.Outcomes) > 0 || f.Cell+f.Task+f.Sort+f.Expression != "" }

// Flags names the flags that select trials, such as "--outcome with --cell"; empty if
// all are selected.
func (f *Filter) Flags() string {
	var names []string
	add := func(set bool, name string) {
		if set {
			names = append(names, name)
		}
	}
	add(f.Expression != "", "--select")
	add(len(f.Outcomes) > 0, "--outcome")
	add(f.Cell != "", "--cell")
	add(f.Task != "", "--task")
	return strings.Join(names, " with ")
}

// Check returns an error for a value that cannot match any trial.
func (f *Filter) Check() error {
	for _, o := range f.Outcomes {
		if o != running && !slices.Contains(record.Outcomes, record.Outcome(o)) {
			if best := suggest.Word(o, strings.Split(joined(record.Outcomes)+", "+running, ", ")); best != "" {
				return fmt.Errorf("--outcome: no outcome %q: did you mean %q?", o, best)
			}
			return fmt.Errorf("--outcome: no outcome %q. The outcomes are %s; and %s", o, joined(record.Outcomes), running)
		}
	}
	for flag, pattern := range map[string]string{"--cell": f.Cell, "--task": f.Task} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s: %q is not a valid pattern: %w", flag, pattern, err)
		}
	}
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

// Nothing returns an error that says what there is, if the run has no such cell or
// task.
func (f *Filter) Nothing(m *store.Manifest, x *store.Index) error {
	if len(Select(m, x, f)) > 0 {
		return nil
	}
	var cells, tasks []string
	add := func(to *[]string, name string) {
		if !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	for _, t := range x.Trials {
		add(&cells, cmp.Or(m.Cells[t.Cell].Key, m.Cells[t.Cell].Agent))
		add(&tasks, t.Task)
	}
	if f.Cell != "" && len(Select(m, x, &Filter{Cell: f.Cell})) == 0 {
		for i := range m.Cells { // its other names are only suggested
			add(&cells, m.Cells[i].Slug)
		}
		return unmatched("--cell", "cell", f.Cell, cells)
	}
	if f.Task != "" && len(Select(m, x, &Filter{Task: f.Task})) == 0 {
		for _, t := range tasks {
			add(&tasks, path.Base(t))
		}
		return unmatched("--task", "task", f.Task, tasks)
	}
	if len(Select(m, x, &Filter{Cell: f.Cell, Task: f.Task})) == 0 {
		return fmt.Errorf("--cell %s --task %s: each matches trials, but none matches both", f.Cell, f.Task)
	}
	return nil // no trial has the outcome yet, which is an answer
}

// none says that no trial is selected, for a filter without a mistake.
func (f *Filter) none() string {
	if f.Expression != "" {
		return "no trial is selected"
	}
	return "no trial has the outcome " + strings.Join(f.Outcomes, " or ")
}

// unmatched is the error for a filter that no name matches.
func unmatched(flag, what, wanted string, names []string) error {
	return fmt.Errorf("%s: no %s of the run matches %q%s", flag, what, wanted, suggest.After(wanted, names))
}

func joined(outcomes []record.Outcome) string {
	names := make([]string, len(outcomes))
	for i, o := range outcomes {
		names[i] = string(o)
	}
	return strings.Join(names, ", ")
}

// Select returns the trials of a run that match, in the order that f wants.
func Select(m *store.Manifest, x *store.Index, f *Filter) []*store.TrialState {
	var trials []*store.TrialState
	for _, t := range x.Trials {
		cell := &m.Cells[t.Cell]
		if (f.chosen == nil || f.chosen[t]) && (len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, outcomeOf(x, t))) &&
			matches(f.Task, t.Task, path.Base(t.Task)) && matches(f.Cell, cell.Key, cell.Slug, cell.Agent) {
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

// outcomeOf is the outcome of a trial, or running.
func outcomeOf(x *store.Index, t *store.TrialState) string {
	if x.UnderWay(t) {
		return running
	}
	return string(t.Outcome())
}

// matches reports whether a name is wanted, or matches the pattern wanted.
func matches(wanted string, names ...string) bool {
	return wanted == "" || slices.ContainsFunc(names, func(name string) bool {
		ok, err := path.Match(wanted, name)
		return name == wanted || err == nil && ok
	})
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
