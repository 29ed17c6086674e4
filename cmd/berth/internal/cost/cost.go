// Package cost tells what a planned run can cost at most. It must not ask a provider.
package cost

import (
	"fmt"
	"math"
	"slices"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/plugins/dialect"
)

// WorstCase is the cost if every trial uses up its budget in every attempt, or
// every cell its own budget.
func WorstCase(p *plan.Plan, dialects *dialect.Set) output.Cost {
	perTrial := make([]*float64, len(p.Experiment.Cells))
	sums := make([]float64, len(p.Experiment.Cells))
	var out output.Cost
	for i, c := range p.Experiment.Cells {
		usd, unknown := trialCost(c, dialects, p.Needs(i))
		if len(unknown) == 0 {
			perTrial[i] = &usd
		}
		if c.PerCell.CostUSD != nil {
			unknown = slices.DeleteFunc(unknown, func(u unbounded) bool { return !u.price })
		}
		for _, u := range unknown {
			if !slices.Contains(out.Unknown, u.why) {
				out.Unknown = append(out.Unknown, u.why)
			}
		}
	}
	attempts := 1 + p.Experiment.Retry.Max
	out.LimitUSD = p.Experiment.Limits.CostUSD
	total := 0.0
	for i := range p.Trials {
		t := &p.Trials[i]
		if t.Invalid != "" || t.Refused != "" {
			continue
		}
		out.Attempts += attempts
		if usd := perTrial[t.Cell]; usd != nil {
			sums[t.Cell] += *usd * float64(attempts)
		} else {
			sums[t.Cell] = math.Inf(1)
		}
	}
	for i, c := range p.Experiment.Cells {
		if most := c.PerCell.CostUSD; most != nil {
			sums[i] = min(sums[i], *most)
		}
		total += sums[i]
	}
	switch {
	case len(out.Unknown) == 0 && out.LimitUSD != nil && *out.LimitUSD < total:
		out.WorstUSD = out.LimitUSD
	case len(out.Unknown) == 0:
		out.WorstUSD = &total
	}
	return out
}

// unbounded is why it is not known what an attempt can cost.
type unbounded struct {
	why   string
	price bool // the price of a model is not known, and a budget does not help
}

// trialCost is the most that one attempt in a cell can cost, or why that is
// not known.
func trialCost(c *experiment.Cell, dialects *dialect.Set, n plan.Needs) (usd float64, unknown []unbounded) {
	add := func(who string, models map[string]*cell.Model, budget *float64, tokens *int64) {
		if len(models) == 0 {
			return
		}
		dearest := 0.0
		for _, first := range models {
			for _, m := range first.Chain() {
				top, ok := gateway.PriceOf(dialects, m).Highest()
				if !ok {
					unknown = append(unknown, unbounded{fmt.Sprintf("the price of model %q is not known: add a price block", m.Label), true})
					return
				}
				dearest = max(dearest, top)
			}
		}
		switch {
		case dearest == 0:
		case budget != nil:
			usd += *budget
		case tokens != nil:
			usd += float64(*tokens) / 1e6 * dearest
		default:
			unknown = append(unknown, unbounded{who + " has no budget: set cost_usd or tokens", false})
		}
	}
	if n.Agent == nil || len(n.Agent.Dialects) > 0 { // one that could not be asked is taken to ask models
		add("an attempt", c.Agent.Models, c.Limits.CostUSD, c.Limits.Tokens)
	}
	if u := c.User; u != nil {
		add("the user", u.Agent.Models, u.CostUSD, u.Tokens)
	}
	for name, v := range c.Verifiers {
		add(fmt.Sprintf("verifier %q", name), v.Models, v.CostUSD, v.Tokens)
	}
	return usd, unknown
}
