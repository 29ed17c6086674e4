package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/tui"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Summary prints cells, outcomes and marks of a run.
func Summary(p *terminal.Printer, s *summary.Summary) {
	rows(p, "cell", s.Cells)
	p.Printf("\n")
	if len(s.Tasks) > len(s.Cells) && len(s.Tasks) <= maxTasks {
		rows(p, "task", s.Tasks)
		p.Printf("\n")
	}
	labels(p, s.Cells)
	p.Printf("%s\n", sum(s, p.Color))
	if s.Tokens > 0 {
		p.Printf("%s\n", tokensAndCost(&store.Spend{CostUSD: s.CostUSD, Unpriced: s.Unpriced, Tokens: s.Tokens, Estimated: s.Estimated, Fallback: s.Fallback}))
	}
	if s.Regrades != nil {
		p.Printf("to verify again: %s\n", tokensAndCost(s.Regrades))
	}
	for _, m := range s.Marks {
		p.Printf("%s %s\n", terminal.Paint(p.Color, terminal.Odd, "note:"), terminal.Clean(m))
	}
}

// labels prints how often verifiers gave each label, in each cell.
func labels(p *terminal.Printer, cells []summary.Row) {
	t := terminal.Table{Head: []string{"label", "cell", "trials"}}
	for i := range cells {
		c := &cells[i]
		for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
			var parts []string
			for _, text := range summary.ByCount(c.Labels[name]) {
				parts = append(parts, fmt.Sprintf("%d %s", c.Labels[name][text], terminal.Clean(text)))
			}
			if n := len(parts) - maxLabels; n > 0 {
				parts = append(parts[:maxLabels], fmt.Sprintf("and %d more", n))
			}
			t.Row(terminal.Clean(name), terminal.Clean(cmp.Or(c.Name, c.Agent)), strings.Join(parts, ", "))
		}
	}
	if t.Len() > 0 {
		t.Write(p)
		p.Printf("\n")
	}
}

// maxLabels is how many texts of a label the table has at most; summary.json has
// more.
const maxLabels = 10

// maxTasks is how many rows the table of tasks has at most; all of them are in
// summary.json.
const maxTasks = 50

// rows prints one table of a summary with both denominators. The one of planned
// trials comes first, because it includes every trial.
func rows(p *terminal.Printer, what string, rows []summary.Row) {
	scores, exposed, budget, cells, unchecked := false, false, false, false, false
	for i := range rows {
		scores = scores || rows[i].Score != nil
		exposed = exposed || rows[i].Exposed > 0
		budget = budget || rows[i].Budget > 0
		cells = cells || rows[i].Cell != ""
		unchecked = unchecked || rows[i].PassedChecked < rows[i].Passed
	}
	t := terminal.Table{Head: []string{what}, Right: []bool{false}}
	if cells {
		t.Head, t.Right = append(t.Head, "cell"), append(t.Right, false)
	}
	t.Above = len(t.Head)
	t.Right = append(t.Right, true, true, true, true, true, true, true)
	passed := "passed"
	if unchecked {
		passed = "checked of passed" // one column, so that the table fits a terminal
	}
	t.Head = append(t.Head, passed, "of planned", "of measured")
	if scores {
		t.Head = append(t.Head, "mean score")
	}
	others := otherScores(rows)
	for _, name := range others {
		t.Head, t.Right = append(t.Head, "mean "+terminal.Clean(name)), append(t.Right, true)
	}
	if t.Head = append(t.Head, "not measured"); exposed {
		t.Head = append(t.Head, "exposed")
	}
	if budget {
		t.Head = append(t.Head, "ended by budget")
	}
	for i := range rows {
		r := &rows[i]
		name := r.Name
		if name == "" {
			name = r.Agent
		}
		name = named(name, r.Dataset)
		row := []string{terminal.Clean(name)}
		if cells {
			row = append(row, terminal.Clean(r.Cell))
		}
		row = append(row, passes(r, unchecked), rate(r.OfPlanned, r.Passed, r.Planned), rate(r.OfMeasured, r.Passed, r.Measured))
		if scores {
			row = append(row, score(r))
		}
		row = append(row, means(r, others)...)
		if row = append(row, strconv.Itoa(r.Planned-r.Measured)); exposed {
			row = append(row, strconv.Itoa(r.Exposed))
		}
		if budget {
			row = append(row, strconv.Itoa(r.Budget))
		}
		t.Row(row...)
	}
	t.Write(p)
}

// passes is how many trials of a row passed, and, if wanted, how many of them have
// a checked result.
func passes(r *summary.Row, checked bool) string {
	if checked {
		return fmt.Sprintf("%d of %d", r.PassedChecked, r.Passed)
	}
	return strconv.Itoa(r.Passed)
}

// score is the mean score of a row.
func score(r *summary.Row) string {
	if r.Score != nil && r.Instead == "" {
		return strconv.FormatFloat(*r.Score, 'f', 3, 64)
	}
	return r.Instead
}

// means are the means of a row's scores by these names.
func means(r *summary.Row, names []string) (cells []string) {
	for _, name := range names {
		mean := r.Instead
		if v, ok := r.Scores[name]; ok && mean == "" {
			mean = strconv.FormatFloat(v, 'f', 3, 64)
		}
		cells = append(cells, mean)
	}
	return cells
}

// maxScores is how many columns the scores have in which nothing decides; all
// of them are in summary.json.
const maxScores = 4

// otherScores are the names of scores in rows among which nothing decides.
func otherScores(rows []summary.Row) []string {
	names := map[string]bool{}
	for i := range rows {
		for name := range rows[i].Scores {
			names[name] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	return sorted[:min(len(sorted), maxScores)]
}

// named is the name of a task, with its dataset if that is needed to tell it
// from another one.
func named(task, dataset string) string {
	if dataset == "" {
		return task
	}
	return fmt.Sprintf("%s (%s)", task, dataset)
}

func rate(r *float64, passed, n int) string {
	if r == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f%% (%d/%d)", 100**r, passed, n)
}

// sum returns the line of all outcomes, which add up to the number of planned
// trials.
func sum(s *summary.Summary, color bool) string {
	var parts []string
	for _, o := range record.Outcomes {
		if n := s.Outcomes[o]; n > 0 {
			parts = append(parts, terminal.Paint(color, tui.StyleOf(o), fmt.Sprintf("%d %s", n, o)))
		}
	}
	return fmt.Sprintf("%s planned = %s", terminal.Count(s.Planned, "trial", "trials"), strings.Join(parts, " + "))
}

func tokensAndCost(s *store.Spend) string {
	cost := "cost unknown"
	if s.CostUSD != nil {
		cost = fmt.Sprintf("%.4f USD", *s.CostUSD)
		if s.Unpriced {
			cost = "more than " + cost
		}
	}
	return fmt.Sprintf("%d tokens, %s%s%s", s.Tokens, cost, estimated(s.Estimated), byFallbacks(s.Fallback))
}

// byFallbacks marks requests that another model served.
func byFallbacks(requests int64) string {
	if requests == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s served by a fallback model)", terminal.Count(int(requests), "request", "requests"))
}

// estimated marks usage that the provider did not tell for all requests.
func estimated(requests int64) string {
	if requests == 0 {
		return ""
	}
	return fmt.Sprintf(" (estimated for %s)", terminal.Count(int(requests), "request", "requests"))
}

// Outcomes returns the counts on one line.
func Outcomes(counts map[record.Outcome]int) string {
	var parts []string
	for _, o := range record.Outcomes {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// maxTrials is how many trials a table has without --all.
const maxTrials = 40

// list lists the trials that are selected. Those that need attention come first if
// not all have room.
func (s *State) list(p *terminal.Printer) {
	m, x, trials := s.Manifest, s.Index, s.trials
	if len(trials) == 0 {
		p.Printf("no trial is selected\n")
		return
	}
	if !s.filter.All && len(trials) > maxTrials {
		trials = slices.Clone(trials)
		slices.SortStableFunc(trials, func(p, q *store.TrialState) int { return interest(x, p) - interest(x, q) })
		trials = trials[:maxTrials]
	}
	used := slices.ContainsFunc(trials, func(t *store.TrialState) bool { s, _ := t.Spend(); return s.Tokens > 0 })
	t := terminal.Table{Head: []string{"trial", "task", "cell", "rep", "outcome", "score", "time"}, Right: []bool{3: true, 5: true, 6: true}, Below: true}
	if used {
		t.Head, t.Right = append(t.Head, "USD", "tokens"), append(t.Right, true, true)
	}
	t.Head = append(t.Head, "note")
	shared := summary.SharedNames(m)
	pilots := Pilots(s.Dir)
	for _, tr := range trials {
		task := tr.Task
		if shared[task] {
			task = named(task, tr.Dataset)
		}
		now := Running(s.Dir, x, tr, pilots)
		score, took, remark := "", "", tr.Invalid+tr.Refused
		if acc := tr.Accepted(); acc != nil {
			if acc.Result.Score != nil {
				score = fmt.Sprintf("%.2f", *acc.Result.Score)
			}
			took = terminal.Seconds(acc.Result.End.Sub(acc.Result.Start))
			remark = briefNote(tr, acc)
		}
		if now != nil {
			if remark != "" {
				remark = fmt.Sprintf("; before: %s %s", tr.Outcome(), remark)
			}
			score, took, remark = "", terminal.Seconds(age(now.Start)), runningText(now)+remark
		}
		row := []string{
			Short(tr.ID, 8), terminal.Clean(task), terminal.Clean(m.Cells[tr.Cell].Slug), strconv.Itoa(tr.Repetition),
			outcomeText(p, tr, now != nil), score, took,
		}
		if used {
			s, _ := tr.Spend()
			cost, tokens := spent(&s)
			row = append(row, cost, tokens)
		}
		t.Row(append(row, terminal.Clean(remark))...)
	}
	t.Write(p)
	if n := len(s.trials) - len(trials); n > 0 {
		p.Printf("… and %d more; use --all to list them\n", n)
	}
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

// interest puts errors before what is running before failures before the rest.
func interest(x *store.Index, t *store.TrialState) int {
	switch o := t.Outcome(); {
	case x.UnderWay(t):
		return 2
	case !o.Measured() && o != record.NotRun:
		return 0
	case o == record.AgentError:
		return 1
	case o == record.Failed:
		return 3
	default:
		return 4
	}
}

func briefNote(t *store.TrialState, acc *store.AttemptState) string {
	var notes []string
	b := acc.Result
	if n := len(t.Attempts); n > 1 {
		notes = append(notes, fmt.Sprintf("attempt %d of %d", acc.Number, n))
	}
	if b.AgentEnd != "" && b.AgentEnd != record.Yielded {
		notes = append(notes, string(b.AgentEnd))
	}
	if b.Integrity == record.Exposed || b.Integrity == record.Violated {
		notes = append(notes, string(b.Integrity))
	}
	if b.Error != "" {
		notes = append(notes, b.Error)
	}
	return strings.Join(notes, ", ")
}
