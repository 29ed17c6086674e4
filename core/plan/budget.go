package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/core/gateway/price"
	"github.com/berth-eval/berth/plugins/model"
)

// firstInput is what the first request of an agent is taken to have, in tokens
// as budgets count them, one a byte: its instructions, its tools and the task.
// Those of the agents of this tree have 5,000 to 100,000 bytes.
const firstInput = 20_000

// budget is one that requests are reserved in.
type budget struct {
	block  string // of the experiment
	usd    *float64
	tokens *int64
}

// budgets warns of budgets that could not pay for the first request of an agent
// or of a user: each attempt would end before it has begun.
func (m *maker) budgets() {
	l := m.plan.Experiment.Limits
	for i, c := range m.plan.Experiment.Cells {
		shared := []budget{{"per_cell", c.PerCell.CostUSD, c.PerCell.Tokens}, {"limits", l.CostUSD, l.Tokens}}
		if n := m.needs[i]; n == nil || n.agent == nil || len(n.agent.Dialects) > 0 {
			m.tooSmall(c, c.Agent.Models, append(shared, budget{"per_trial", c.PerTrial.CostUSD, c.PerTrial.Tokens}))
		}
		if u := c.User; u != nil {
			m.tooSmall(c, u.Agent.Models, append(shared, budget{"user", u.CostUSD, u.Tokens}))
		}
	}
}

// tooSmall warns of the budgets that a request to one of the models may not fit
// into.
func (m *maker) tooSmall(c *config.Cell, models map[string]*cell.Model, budgets []budget) {
	for _, name := range slices.Sorted(maps.Keys(models)) {
		of := models[name]
		output := m.mostOutput(of)
		usd := math.Ceil(price.AtMost(price.Of(&m.in.Dialects, of), firstInput, output)*100) / 100
		for _, b := range budgets {
			has, least, unit := "", "", ""
			switch {
			case b.usd != nil && *b.usd < usd:
				has, least, unit = fmt.Sprintf("cost_usd = %g", *b.usd), fmt.Sprintf("%.2f", usd), " USD"
			case b.tokens != nil && *b.tokens < firstInput+output:
				has, least, unit = fmt.Sprintf("tokens = %d", *b.tokens), fmt.Sprint(firstInput+output), " tokens"
			default:
				continue
			}
			m.problems.add(Problem{
				Severity: config.Warning, Cells: []string{c.Key}, Summary: "a budget may be too small for one request",
				Detail: fmt.Sprintf("%s has %s, and a request to model %q that lets it say %d tokens, with %d bytes of instructions and tools, sets aside %s%s before it is sent. "+
					"Set at least %s, or let the model say less (parameters or reserve_output of its block, settings of the agent).",
					b.block, has, of.Label, output, firstInput, least, unit, least),
			})
		}
	}
}

// mostOutput is how many tokens of output are set aside for a request that has
// no bound but that of the model's block.
func (m *maker) mostOutput(of *cell.Model) int64 {
	limits := price.LimitsOf(&m.in.Dialects, of)
	d := m.in.Dialects.Named(model.Dialect(of.Provider))
	if d == nil || len(of.Parameters) == 0 {
		return limits.Usual
	}
	o, err := dialect.ParseObject(of.Parameters)
	if err != nil {
		return limits.Usual
	}
	if f, err := d.Facts(dialect.Call{Kind: dialect.Generate}, o); err == nil && f.MaxOutput > 0 {
		return int64(f.MaxOutput)
	}
	return limits.Usual
}
