package run

import (
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/store"
)

// Models returns the models that some cells use, without duplicates, by label.
func Models(cells ...*experiment.Cell) []*cell.Model {
	var used []*cell.Model
	add := func(ms map[string]*cell.Model) {
		for _, m := range ms {
			if !slices.Contains(used, m) {
				used = append(used, m)
			}
		}
	}
	for _, c := range cells {
		add(c.Agent.Models)
		if c.User != nil {
			add(c.User.Agent.Models)
		}
		for _, v := range c.Verifiers {
			add(v.Models)
		}
		if c.Model != nil {
			add(map[string]*cell.Model{"": c.Model})
		}
	}
	slices.SortStableFunc(used, func(a, b *cell.Model) int { return strings.Compare(a.Label, b.Label) })
	return used
}

// Gateway makes the gateway of this process; nil when the run uses no models. dir
// is as in gateway.Options. If another process schedules the run, it has the
// budgets of the run and of cells, and the keys of the models that are asked
// through it.
func (s *Spec) Gateway(dir string) (*gateway.Gateway, error) {
	ms := Models(s.Plan.Experiment.Cells...)
	if len(ms) == 0 {
		return nil, nil
	}
	if s.Worker != nil {
		g, err := gateway.New(gateway.Options{
			Dir: dir, Dialects: s.Dialects, Models: ms, Replay: Replay(s.FindRun), Uplink: s.Uplink, Relayed: s.Relayed, Log: s.Log,
		})
		for _, used := range ms {
			for _, m := range used.Chain() {
				if err == nil && s.Uplink != nil && s.Relayed(m) {
					m.APIKey, m.APIKeys = nil, nil // they are not read here
				}
			}
		}
		return g, err
	}
	spent := spentBefore(s.Store.Index())
	var sum ledger.Amount
	for _, one := range spent {
		sum = sum.Plus(one)
	}
	l := s.Limits
	g, err := gateway.New(gateway.Options{
		Dir: dir, Dialects: s.Dialects, Models: ms, Replay: Replay(s.FindRun), Run: l.Budget, Spent: sum,
		Cells: s.budgets(spent), Log: s.Log,
	})
	if s.Control != nil {
		s.Control.gateway = g
	}
	return g, err
}

// budgets returns the budgets of the cells, with the amounts that were spent
// before the run was resumed.
func (s *Spec) budgets(spent map[string]ledger.Amount) []gateway.Cell {
	cells := make([]gateway.Cell, len(s.Plan.Experiment.Cells))
	for i, c := range s.Plan.Experiment.Cells {
		cells[i] = gateway.Cell{Name: c.Key, Limit: c.PerCell, Models: Models(c)}
	}
	for i := range s.Plan.Trials {
		t := &s.Plan.Trials[i]
		c := &cells[t.Cell]
		c.Trials = append(c.Trials, t.ID)
		c.Spent = c.Spent.Plus(spent[t.ID])
	}
	return cells
}

// spentBefore returns what the attempts of a run have spent so far, by trial,
// including attempts that were killed. An unknown cost counts as zero: without
// a known price there is no budget in USD.
func spentBefore(index *store.Index) map[string]ledger.Amount {
	spent := map[string]ledger.Amount{}
	for id, s := range index.Spent() {
		a := ledger.Amount{Requests: s.Requests, Tokens: s.Tokens}
		if s.CostUSD != nil {
			a.USD = *s.CostUSD
		}
		spent[id] = a
	}
	return spent
}

// Replay returns a function that reads the runs that models are replayed from.
// find finds the folder of a run; nil uses the name as a path.
func Replay(find func(name string) (string, error)) func(string) (gateway.Recording, error) {
	return func(name string) (gateway.Recording, error) {
		dir := name
		if find != nil {
			var err error
			if dir, err = find(name); err != nil {
				return nil, err
			}
		}
		return store.OpenRecorded(dir)
	}
}
