package cost

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/plugins/dialect"
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

// SmallBudgets warns of budgets that could not pay for the first request of an
// agent or of a user: each attempt would end before it has begun.
func SmallBudgets(p *plan.Plan, dialects *dialect.Set) []plan.Problem {
	var all []plan.Problem
	l := p.Experiment.Limits
	for i, c := range p.Experiment.Cells {
		shared := []budget{{"per_cell", c.PerCell.CostUSD, c.PerCell.Tokens}, {"limits", l.CostUSD, l.Tokens}}
		var details []string
		if usesModels(p.Needs(i)) {
			details = tooSmall(dialects, c.Agent.Models, append(shared, budget{"per_trial", c.Limits.CostUSD, c.Limits.Tokens}))
		}
		if u := c.User; u != nil {
			details = append(details, tooSmall(dialects, u.Agent.Models, append(shared, budget{"user", u.CostUSD, u.Tokens}))...)
		}
		for _, detail := range details {
			at := slices.IndexFunc(all, func(p plan.Problem) bool { return p.Detail == detail })
			if at < 0 {
				at = len(all)
				all = append(all, plan.Problem{Severity: plan.Warning, Summary: "a budget may be too small for one request", Detail: detail})
			}
			if !slices.Contains(all[at].Cells, c.Key) {
				all[at].Cells = append(all[at].Cells, c.Key)
			}
		}
	}
	return all
}

// usesModels says whether the agent of a cell asks models; one that could not be
// asked is taken to do so.
func usesModels(n plan.Needs) bool { return n.Agent == nil || len(n.Agent.Dialects) > 0 }

// tooSmall describes the budgets into which a request to one of the models may not
// fit.
func tooSmall(dialects *dialect.Set, models map[string]*cell.Model, budgets []budget) (details []string) {
	for _, name := range slices.Sorted(maps.Keys(models)) {
		of := models[name]
		output := mostOutput(dialects, of)
		usd := math.Ceil(gateway.PriceOf(dialects, of).AtMost(firstInput, output, false)*100) / 100
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
			details = append(details, fmt.Sprintf(
				"%s has %s, and a request to model %q that lets it say %d tokens, with %d bytes of instructions and tools, sets aside %s%s before it is sent. "+
					"Set at least %s, or let the model say less (parameters or reserve_output of its block, settings of the agent).",
				b.block, has, of.Label, output, firstInput, least, unit, least))
		}
	}
	return details
}

// mostOutput is how many tokens of output are set aside for a request that has
// no bound but that of the model's block.
func mostOutput(dialects *dialect.Set, of *cell.Model) int64 {
	limits := gateway.LimitsOf(dialects, of)
	d := dialects.Named(model.Dialect(of.Provider))
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
