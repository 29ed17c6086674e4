package page

import (
	"fmt"
	"math"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

type rowOf = map[string]any

// payload is what the script of the page gets.
type payload struct {
	Base     string             `json:"base,omitempty"` // as in Options
	Raw      bool               `json:"raw,omitempty"`  // as in Report
	Tables   map[string][]rowOf `json:"tables"`         // the rows of each chart that has something to show
	Cells    []string           `json:"cells"`
	Tasks    []string           `json:"tasks"`
	Runs     []string           `json:"runs"`
	Outcomes []record.Outcome   `json:"outcomes"` // that occur
	Trials   [][]any            `json:"trials"`   // as attempts returns them; null: left out, because the page would be too large
}

// finite is nil for what is not a number, which JSON does not have.
func finite(x float64) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return math.Round(x*1e6) / 1e6
}

// payload returns the data of the page.
func (m *Report) payload() *payload {
	p := &payload{Base: m.Base, Raw: m.Raw, Tables: map[string][]rowOf{}, Tasks: m.tasks, Outcomes: m.Outcomes, Trials: m.attempts()}
	for _, c := range m.Cells {
		p.Cells = append(p.Cells, c.Name)
	}
	for i := range m.Runs {
		p.Runs = append(p.Runs, m.Runs[i].Name)
	}
	for id, rows := range map[string][]rowOf{"leaderboard": m.leaderboard(), "heat": m.heat(), "pareto": m.pareto(), "outcomes": m.outcomes()} {
		if len(rows) > 0 {
			p.Tables[id] = rows
		}
	}
	return p
}

func (m *Report) outcomes() (rows []rowOf) {
	for _, c := range m.Cells {
		for _, o := range m.Outcomes {
			if n := c.Outcomes[o]; n > 0 {
				rows = append(rows, rowOf{"cell": c.Name, "outcome": o, "trials": n})
			}
		}
	}
	return rows
}

// Has reports whether the page has a chart.
func (m *Report) Has(id string) bool { return m.charts[id] != nil }

func (m *Report) leaderboard() (rows []rowOf) {
	for _, c := range m.Cells {
		if c.Sample != nil {
			low, high := bounds(c.Interval)
			rows = append(rows, rowOf{"cell": c.Name, "rate": finite(c.rate()), "low": low, "high": high, "tasks": c.Tasks})
		}
	}
	return rows
}

// bounds are those of an interval; nil if there is none.
func bounds(in *output.Interval) (low, high any) {
	if in == nil {
		return nil, nil
	}
	return finite(in.Low), finite(in.High)
}

// maxHeat is how many fields the heat map has at most.
const maxHeat = 40_000

func (m *Report) heat() (rows []rowOf) {
	type at struct {
		task string
		cell int
	}
	sum, n, planned := map[at]float64{}, map[at]int{}, map[at]int{}
	for i := range m.joined.Trials {
		t := &m.joined.Trials[i]
		k := at{t.TaskName, t.Cell}
		planned[k]++
		if a, ok := numbers.Attempt(t.TrialState, t.TaskName); ok {
			sum[k] += a.Score
			n[k]++
		}
	}
	tasks := m.tasks
	if most := maxHeat / max(len(m.Cells), 1); len(tasks) > most {
		m.Notes = append(m.Notes, fmt.Sprintf("the heat map has %d of %d tasks; the selection below it has all of them", most, len(tasks)))
		tasks = tasks[:most]
	}
	for _, task := range tasks {
		for c, cell := range m.Cells {
			k := at{task, c}
			if planned[k] > 0 {
				rows = append(rows, rowOf{"task": task, "cell": cell.Name, "score": finite(sum[k] / float64(n[k])), "measured": n[k], "planned": planned[k]})
			}
		}
	}
	return rows
}

// rate is the success rate; NaN if nothing was measured.
func (c *cell) rate() float64 {
	if c.Mean == nil {
		return math.NaN()
	}
	return *c.Mean
}

// CostOfTrial is the mean cost of a planned trial in USD, with all its attempts; NaN
// if it is not known.
func (c *cell) CostOfTrial() float64 {
	if c.Spend.CostUSD == nil || c.Spend.Unpriced || c.Planned == 0 {
		return math.NaN()
	}
	return *c.Spend.CostUSD / float64(c.Planned)
}

// pareto returns the cells whose cost is known, if there are two.
func (m *Report) pareto() (rows []rowOf) {
	var rates, costs []float64
	for _, c := range m.Cells {
		if cost := c.CostOfTrial(); c.Sample != nil && !math.IsNaN(cost) {
			rows = append(rows, rowOf{"cell": c.Name, "rate": finite(c.rate()), "cost": finite(cost)})
			rates, costs = append(rates, c.rate()), append(costs, cost)
		}
	}
	if len(rows) < 2 {
		return nil
	}
	for i, on := range numbers.Front(rates, costs) {
		rows[i]["front"] = on
	}
	return rows
}

// attempts returns a row for each trial: cell, task, run (as numbers of other lists),
// repetition, outcome, score, agent end, integrity, the accepted attempt, attempts,
// seconds of the agent, tokens, cost and id.
func (m *Report) attempts() (rows [][]any) {
	tasks, runs := map[string]int{}, map[*numbers.Run]int{}
	for i, t := range m.tasks {
		tasks[t] = i
	}
	for i := range m.joined.Runs {
		runs[&m.joined.Runs[i]] = i
	}
	for i := range m.joined.Trials {
		t := &m.joined.Trials[i]
		id, accepted, r := t.ID, 0, &store.Brief{}
		if a := t.Accepted(); a != nil {
			accepted, r = a.Number, a.Result
		}
		if m.Base == "" { // berth show finds a trial by the beginning of its id
			id = report.Short(id, 12)
		}
		spend, _ := t.Spend()
		rows = append(rows, []any{
			t.Cell, tasks[t.TaskName], runs[t.Run], t.Repetition, t.Outcome(), r.Score, r.AgentEnd, r.Integrity, accepted, len(t.Attempts),
			math.Round(r.AgentTime.Seconds()*10) / 10, spend.Tokens, spend.CostUSD, id,
		})
	}
	return rows
}
