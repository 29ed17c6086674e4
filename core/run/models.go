package run

import (
	"maps"
	"slices"

	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/ledger"
)

// Models are the models that an experiment uses, each once, by label.
func Models(e *config.Experiment) []config.Model {
	byID := map[string]config.Model{}
	add := func(ms map[string]config.Model) {
		for _, m := range ms {
			byID[gateway.ModelID(m)] = m
		}
	}
	for _, c := range e.Cells {
		add(c.Agent.Models)
		if c.User != nil {
			add(c.User.Agent.Models)
		}
		for _, v := range c.Verifiers {
			add(v.Models)
		}
		if c.Model != nil {
			add(map[string]config.Model{"": *c.Model})
		}
	}
	var ms []config.Model
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		ms = append(ms, byID[id])
	}
	return ms
}

// gateway serves the models of a run; nil when it uses none.
func (s *Spec) gateway(dir string) (*gateway.Gateway, error) {
	ms := Models(s.Plan.Experiment)
	if len(ms) == 0 {
		return nil, nil
	}
	spent := gateway.Before(s.Store.Index())
	var sum ledger.Amount
	for _, one := range spent {
		sum = sum.Plus(one)
	}
	l := s.Limits
	// The underscore: folders of attempts beside it have names of letters and digits.
	return gateway.New(gateway.Options{
		Dir: dir + "/_g", Models: ms, FindRun: s.FindRun, Run: ledger.Limit{Requests: l.Requests, Tokens: l.Tokens, USD: l.CostUSD}, Spent: sum,
		Cells: s.budgets(spent), Log: s.Log,
	})
}

// budgets are those of the cells, with what was spent of them before the run
// was resumed.
func (s *Spec) budgets(spent map[string]ledger.Amount) []gateway.Cell {
	cells := make([]gateway.Cell, len(s.Plan.Experiment.Cells))
	for i, c := range s.Plan.Experiment.Cells {
		p := &c.PerCell
		cells[i] = gateway.Cell{Name: c.Key, Limit: ledger.Limit{Requests: p.Requests, Tokens: p.Tokens, USD: p.CostUSD}}
		for _, m := range Models(&config.Experiment{Cells: []*config.Cell{c}}) {
			cells[i].Models = append(cells[i].Models, gateway.ModelID(m))
		}
	}
	for i := range s.Plan.Trials {
		t := &s.Plan.Trials[i]
		c := &cells[t.Cell]
		c.Trials = append(c.Trials, t.ID)
		c.Spent = c.Spent.Plus(spent[t.ID])
	}
	return cells
}
