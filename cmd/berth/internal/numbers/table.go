package numbers

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"

	"github.com/berth-eval/berth/cmd/berth/internal/stats"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
)

// accepted says which attempt of a trial counts.
const accepted = "the last attempt that settled the trial counts; all attempts but those of berth regrade count for cost and tokens"

// Wanted says which table is made.
type Wanted struct {
	By     []string
	K      int // for pass@k, all-k and best-of-k; 0: what every task has
	Rules  Rules
	Force  bool
	Select string // expression of the trials that count, as in package selection; empty: all
}

// group is the trials of one row.
type group struct {
	values []string
	trials []*Trial
	reward string // the score that the row is about; empty: the deciding one
	raw    bool   // it is about a raw score
	full   bool   // it says which trials have the full reward
}

// Table makes a table of several runs. Fails for names to group by that do not
// exist, for a k that is larger than the repetitions, and, unless forced, for what
// the rules refuse.
func Table(j *Joined, w *Wanted) (*output.Table, error) {
	fields, err := groupFields(j, w.By)
	if err != nil {
		return nil, err
	}
	if len(j.Cells) > 1 && !slices.ContainsFunc(fields, func(f groupField) bool { return f.cells }) {
		fields = append([]groupField{cellField(j)}, fields...) // agents are not mixed with each other
	}
	res := &output.Table{
		Level: level, Weigh: w.Rules.Weigh, Policy: summary.Policy, Accepted: accepted, Rows: []output.TableRow{},
	}
	for i := range j.Runs {
		res.Runs = append(res.Runs, j.Runs[i].Dir)
	}
	for i := range fields {
		res.By = append(res.By, fields[i].name)
	}
	rules := w.Rules
	rules.eachScore = slices.Contains(res.By, byReward)
	if res.Marks = slices.Concat(rules.Refused(j)...); len(res.Marks) > 0 && !w.Force {
		return nil, Refusal(res.Marks)
	}
	if j, err = j.Choose(w.Select); err != nil {
		return nil, err
	}
	res.Notes = slices.Clone(j.Notes)
	groups := grouped(j, fields)
	raw := j.Raw()
	for _, g := range groups {
		g.is(raw)
	}
	res.Rows = make([]output.TableRow, len(groups))
	for i := range groups {
		if res.Rows[i], err = groups[i].row(j, w); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(groups[i].values, ", "), err)
		}
	}
	front(res.Rows, func(r *output.TableRow) string { return rewardIn(r.Values, fields) })
	if slices.Contains(res.By, byReward) {
		res.Notes = append(res.Notes, "each row is about one score of the verifiers: its success rate is 100 times the mean of that score, and its full reward is a score of 1 or more. "+
			"A measured trial that ended in an error without scores counts as 0 in those of its task that are not values below 0 or above 1")
	}
	for _, name := range res.By {
		if slices.Contains(byResult, name) {
			res.Notes = append(res.Notes, "the rows are of trials with the same "+name+", which is a part of their result: success rates of such rows say nothing about agents")
		}
	}
	res.Notes = append(res.Notes, about(res.Rows)...)
	return res, nil
}

// grouped sorts the trials into rows, in the order of their values.
func grouped(j *Joined, fields []groupField) []*group {
	groups := map[string]*group{}
	for i := range j.Trials {
		t := &j.Trials[i]
		for _, values := range places(t, fields) {
			key := strings.Join(values, "\x00")
			if groups[key] == nil {
				groups[key] = &group{values: values, reward: rewardIn(values, fields)}
			}
			groups[key].trials = append(groups[key].trials, t)
		}
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		for i := range fields {
			if c := fields[i].compare(a.values[i], b.values[i]); c != 0 {
				return c
			}
		}
		return 0
	})
}

// is says which kind of score the group is about.
func (g *group) is(raw *Raw) {
	g.full = true
	for _, t := range g.trials {
		if g.reward == "" {
			g.raw = g.raw || raw.Decides(t.TrialState)
			g.full = g.full && !raw.Undecided(t.TrialState)
		}
	}
	if raw.Reward(g.reward) {
		g.raw, g.full = true, false
	}
}

// places returns the values of the rows that a trial is in: one of each field.
func places(t *Trial, fields []groupField) [][]string {
	rows := [][]string{{}}
	for i := range fields {
		var next [][]string
		for _, row := range rows {
			for _, v := range fields[i].of(t) {
				next = append(next, append(slices.Clone(row), v))
			}
		}
		rows = next
	}
	return rows
}

// rewardIn returns the score that a row with these values is about.
func rewardIn(values []string, fields []groupField) string {
	i := slices.IndexFunc(fields, func(f groupField) bool { return f.name == byReward })
	if i < 0 || values[i] == None {
		return ""
	}
	return values[i]
}

// row computes the numbers of a row.
func (g *group) row(j *Joined, w *Wanted) (output.TableRow, error) {
	r := output.TableRow{Values: g.values, Cells: []string{}, Outcomes: map[record.Outcome]int{}}
	cells := map[int]bool{}
	for _, t := range g.trials {
		cells[t.Cell] = true
	}
	for _, c := range slices.Sorted(maps.Keys(cells)) {
		r.Cells = append(r.Cells, j.Cells[c].Name)
	}
	tally := Tally{reward: g.reward, open: !g.full}
	tally.Raw = g.raw
	var measured []*Trial
	for _, t := range g.trials {
		r.Outcomes[t.Outcome()]++
		if _, ok := tally.add(t, w.Rules.Weigh); !ok {
			continue
		}
		if len(cells) > 1 { // repetitions of several cells are told apart
			tally.trials[len(tally.trials)-1].Repetition += t.Cell * maxRepetitions
		}
		measured = append(measured, t)
		switch t.Accepted().Result.AgentEnd {
		case record.Timeout:
			r.Timeouts++
		case record.Budget:
			r.Budget++
		default:
		}
	}
	err := tally.compute(&ratesOf{w.Rules.Weigh, w.K, g.full, len(r.Cells) == 1})
	if r.Rates = tally.Rates; err == nil && len(measured) > 0 {
		spent(&r, measured, tally.trials)
	}
	return r, err
}

// maxRepetitions is more than the repetitions of a trial.
const maxRepetitions = 10_000_000

// spent computes what the trials of a row used.
func spent(r *output.TableRow, trials []*Trial, attempts []stats.Attempt) {
	full := 0
	var tokens, cost, steps, seconds []float64
	perTask := map[string][]float64{}
	for i, t := range trials {
		if attempts[i].Full {
			full++
		}
		sum, _ := t.Spend()
		tokens = append(tokens, float64(sum.Tokens))
		if sum.CostUSD == nil && !sum.Unpriced && sum.Requests == 0 && sum.Tokens == 0 {
			sum.CostUSD = new(float64) // no model was used
		}
		if sum.CostUSD != nil && !sum.Unpriced {
			cost = append(cost, *sum.CostUSD)
			perTask[t.TaskName] = append(perTask[t.TaskName], *sum.CostUSD)
		}
		b := t.Accepted().Result
		steps, seconds = append(steps, float64(b.Steps)), append(seconds, b.AgentTime.Seconds())
	}
	n := len(trials)
	r.Tokens, r.CostUSD, r.Steps, r.AgentTime = measure(tokens, n, full), measure(cost, n, full), measure(steps, n, full), measure(seconds, n, full)
	if len(perTask) == r.Tasks {
		sum := 0.0
		for _, task := range slices.Sorted(maps.Keys(perTask)) {
			sum += mean(perTask[task])
		}
		r.CostPerRun = &sum
	}
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// measure sums up a number of each trial, of which it is known for values.
func measure(values []float64, trials, full int) output.Measure {
	m := output.Measure{N: len(values)}
	if m.N == 0 {
		return m
	}
	average := mean(values)
	slices.Sort(values)
	median := (values[(m.N-1)/2] + values[m.N/2]) / 2
	m.Mean, m.Median = &average, &median
	if m.N == trials && full > 0 {
		per := average * float64(trials) / float64(full)
		m.PerSuccess = &per
	}
	return m
}

// front marks the rows that no other one about the same score beats in success and
// cost. reward returns the name of the score of a row; empty: the one that decides.
func front(rows []output.TableRow, reward func(*output.TableRow) string) {
	type score struct {
		name string
		raw  bool
	}
	known := map[score][]*output.TableRow{}
	for i := range rows {
		if r := &rows[i]; r.Mean != nil && r.CostUSD.Mean != nil && r.CostUSD.N == r.Measured {
			of := score{reward(r), r.Raw}
			known[of] = append(known[of], r)
		}
	}
	for _, of := range known {
		var rates, costs []float64
		for _, r := range of {
			rates, costs = append(rates, *r.Mean), append(costs, *r.CostUSD.Mean)
		}
		for i, on := range Front(rates, costs) {
			of[i].Pareto = &on
		}
	}
}

// Front reports which points no other one beats, given their success rates and
// costs: another would have at least the same rate at no more cost, and be better in
// one of them.
func Front(rates, costs []float64) []bool {
	on := make([]bool, len(rates))
	for i := range rates {
		on[i] = true
		for k := range rates {
			if rates[k] >= rates[i] && costs[k] <= costs[i] && (rates[k] > rates[i] || costs[k] < costs[i]) {
				on[i] = false
			}
		}
	}
	return on
}

// about says what a reader of the rows has to know.
func about(rows []output.TableRow) (notes []string) {
	empty, several, fewer, raw, undecided := 0, 0, 0, 0, false
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Measured == 0:
			empty++
		case r.K > 0 && r.TasksOfK < r.Tasks:
			fewer++
		}
		if len(r.Cells) > 1 {
			several++
		}
		if r.Raw {
			raw++
		}
		undecided = undecided || r.Measured > 0 && r.PassAt1 == nil
	}
	if raw > 0 {
		notes = append(notes, terminal.Count(raw, "row is", "rows are")+" about a score with values below 0 or above 1: its success rate is the mean as it is, and not in percent")
	}
	if undecided {
		notes = append(notes, "nothing says which value of such a score is the full reward, so that it has no pass@1. "+
			"For the score that decides, at_least in success { key = …  at_least = … } of the dataset block says it")
	}
	if empty > 0 {
		notes = append(notes, terminal.Count(empty, "row has", "rows have")+" no measured trial, and so no numbers")
	}
	if fewer > 0 {
		notes = append(notes, terminal.Count(fewer, "row has", "rows have")+" tasks with fewer than k measured trials, which are not in pass@k, all-k and best-of-k")
	}
	if several > 0 {
		notes = append(notes, terminal.Count(several, "row has", "rows have")+" trials of several cells, which count like repetitions; there is no ± over repetitions for them")
	}
	return notes
}

// finite reports whether x can be sorted.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
