package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
)

// direct is a role of an attempt that asks models without the coordinator.
type direct struct {
	name   string // for people
	budget cell.Budget
	models []*cell.Model
}

// directs returns the roles of a cell that ask models without the coordinator.
func directs(c *experiment.Cell, relayed func(*cell.Model) bool) (all []direct) {
	add := func(name string, b cell.Budget, used map[string]*cell.Model) {
		d := direct{name: name, budget: b}
		for _, m := range used {
			for _, one := range m.Chain() {
				if m.Replay == "" && !relayed(one) {
					d.models = append(d.models, one)
				}
			}
		}
		if len(d.models) > 0 {
			all = append(all, d)
		}
	}
	add("agent", c.Limits.Budget, c.Agent.Models)
	if c.User != nil {
		add("simulated user", c.User.Budget, c.User.Agent.Models)
	}
	for name, v := range c.Verifiers {
		add(fmt.Sprintf("verifier %q", name), v.Budget, v.Models)
	}
	return all
}

// shared is a budget that attempts share.
func shared(x *experiment.Experiment, c *experiment.Cell) (requests, tokens, usd bool) {
	l, p := &x.Limits, &c.PerCell
	return l.Requests != nil || p.Requests != nil, l.Tokens != nil || p.Tokens != nil, l.CostUSD != nil || p.CostUSD != nil
}

// sliceOf returns what the attempts of a cell may spend at most each without the
// coordinator, in the units that budgets of the run and of the cell have, and the
// first role that has no budget in one of them.
func sliceOf(x *experiment.Experiment, c *experiment.Cell) (most ledger.Amount, unbounded string) {
	requests, tokens, usd := shared(x, c)
	for _, d := range directs(c, Relayed(&x.Executor)) {
		b := &d.budget
		if requests && b.Requests == nil || tokens && b.Tokens == nil || usd && b.CostUSD == nil {
			return most, d.name
		}
		if requests {
			most.Requests += *b.Requests
		}
		if tokens {
			most.Tokens += *b.Tokens
		}
		if usd {
			most.USD += *b.CostUSD
		}
	}
	return most, ""
}

// slice sets aside what an attempt may spend without the coordinator. It waits
// until there is room. settle takes the result; it is nil if nothing was set aside.
// An error of type *record.Error says that there is no room.
func (r *relay) slice(ctx context.Context, p *plan.Plan, t *plan.Trial) (settle func(*record.Result), err error) {
	if r == nil || r.gateway == nil {
		return nil, nil
	}
	x, c := p.Experiment, p.Experiment.Cells[t.Cell]
	most, unbounded := sliceOf(x, c)
	if unbounded != "" {
		return nil, &record.Error{Boundary: record.ByConfig, Message: fmt.Sprintf("the %s has no budget of its own", unbounded)}
	}
	if most == (ledger.Amount{}) {
		return nil, nil
	}
	back, err := r.gateway.Slice(ctx, t.ID, most)
	if spent, ok := errors.AsType[*ledger.SpentError](err); ok {
		return nil, &record.Error{
			Boundary: record.ByConfig, Stops: r.gateway.ScopeOf(spent), Message: fmt.Sprintf("limit used: %s: raise it, and resume with --experiment PATH", err),
		}
	}
	if err != nil {
		return nil, err
	}
	roles := directs(c, Relayed(&x.Executor))
	return func(result *record.Result) {
		if result.Worker != nil && result.Worker.Lost != "" || result.Usage == nil && result.Outcome == record.Preempted {
			back(most) // what was spent is not known
			return
		}
		back(spentBy(result, roles))
	}, nil
}

// spentBy returns what an attempt spent on models that were asked without the
// coordinator.
func spentBy(r *record.Result, roles []direct) (sum ledger.Amount) {
	names := map[string]bool{}
	for _, d := range roles {
		for _, m := range d.models {
			for _, name := range append([]string{m.Name}, m.AllowModels...) {
				names[name] = true
			}
		}
	}
	for _, u := range r.Spent() {
		if !names[u.Model] && !names["" /* a scripted model without a name */] {
			continue
		}
		one := ledger.Amount{Requests: u.Requests, Tokens: u.InputTokens + u.OutputTokens}
		if u.CostUSD != nil {
			one.USD = *u.CostUSD
		}
		sum = sum.Plus(one)
	}
	return sum
}

// noRoom is the end of an attempt that was not made, because of what the error
// says. The caller does not hold the lock.
func (c *Coordinator) noRoom(w *waiting, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended, e := record.NotRun, &record.Error{}
	if !errors.As(why, &e) { // the run was cancelled meanwhile
		ended, e = record.Cancelled, &record.Error{Boundary: record.ByCore, Message: unclaimed}
	}
	r := c.unmade(w, ended, e.Message)
	r.Error.Boundary, r.Error.Stops, r.Error.Retry = e.Boundary, e.Stops, false
	r.Start, r.End = time.Now().UTC(), time.Now().UTC()
	c.settle(w, &r)
}
