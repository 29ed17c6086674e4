package page

import (
	"fmt"
	"math"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/report/charts"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// chart is a chart of the page.
type chart struct {
	ID   string      `json:"id"`
	Spec charts.Spec `json:"spec"`
	Data string      `json:"data"` // name of its rows
}

type rowOf = map[string]any

// payload is what the script of the page gets.
type payload struct {
	Base   string             `json:"base,omitempty"` // as in Options
	Raw    bool               `json:"raw,omitempty"`  // as in Report
	Charts []chart            `json:"charts"`
	Tables map[string][]rowOf `json:"tables"`
	Cells  []string           `json:"cells"`
	Tasks  []string           `json:"tasks"`
	Runs   []string           `json:"runs"`
	Trials [][]any            `json:"trials"` // as attempts returns them; null: left out, because the page would be too large
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
	p := &payload{Base: m.Base, Raw: m.Raw, Tables: map[string][]rowOf{}, Tasks: m.tasks}
	for _, c := range m.Cells {
		p.Cells = append(p.Cells, c.Name)
	}
	for i := range m.Runs {
		p.Runs = append(p.Runs, m.Runs[i].Name)
	}
	p.add("leaderboard", m.scores(charts.Leaderboard(len(m.Cells))), m.leaderboard())
	heat := m.heat()
	p.add("heat", m.scores(charts.Heat(len(m.tasks), len(m.Cells))), heat)
	p.add("pareto", m.scores(charts.Pareto()), m.pareto())
	var outcomes []rowOf
	var names, colors []string
	for _, o := range m.Outcomes {
		names, colors = append(names, string(o)), append(colors, Color(o))
	}
	for _, c := range m.Cells {
		for _, o := range m.Outcomes {
			if n := c.Outcomes[o]; n > 0 {
				outcomes = append(outcomes, rowOf{"cell": c.Name, "outcome": o, "trials": n})
			}
		}
	}
	p.add("outcomes", charts.Outcomes(len(m.Cells), names, colors), outcomes)
	p.Trials = m.attempts()
	return p
}

// Color returns the color of an outcome: results of the agent in green, yellow
// and red, the others in blue, violet and gray.
func Color(o record.Outcome) string {
	known := map[record.Outcome]string{
		record.Passed: "#3d9a50", record.Failed: "#c9504b", record.Scored: "#c9a227", record.AgentError: "#e08a3c", record.EnvironmentError: "#4c78a8",
		record.VerifierError: "#9467bd", record.JudgeError: "#c5b0d5", record.ModelError: "#72b7b2", record.UserError: "#b279a2", record.RateLimited: "#6fa8dc", record.PluginCrashed: "#2f4b7c",
		record.ArtifactMissing: "#b5838d", record.IntegrityViolation: "#7f1d1d", record.TaskInvalid: "#8c6d31", record.Preempted: "#a0b8c8",
		record.Cancelled: "#8a94a6", record.NotRun: "#c2c8d0",
	}
	if c, ok := known[o]; ok {
		return c
	}
	return "#8a94a6"
}

// add adds a chart, unless it has nothing to show.
func (p *payload) add(id string, s charts.Spec, rows []rowOf) {
	if len(rows) == 0 {
		return
	}
	p.Charts = append(p.Charts, chart{id, s, id})
	p.Tables[id] = rows
}

// scores is a chart of scores: without percent if they are raw.
func (m *Report) scores(s charts.Spec) charts.Spec {
	if m.Raw {
		return charts.AsNumbers(s)
	}
	return s
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
