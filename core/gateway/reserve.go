package gateway

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/plugins/dialect"
)

// limits are the largest numbers of tokens of a request to a model and of its answer.
type limits struct {
	context int64 // of a request
	output  int64 // of an answer; 0: not known
	usual   int64 // assumed limit of an answer when the request does not set one
}

// limits returns the limits of the requested model from its block, or else from the
// table. The usual one is lower than the model's, because few answers are that long.
func (x *exchange) limits() limits {
	m, known := &x.e.up.model, x.s.g.o.Dialects.Known(x.line.Model)
	l := limits{cmp.Or(m.ContextTokens, known.Context, assumedContext), known.MaxOutput, assumedOutput}
	if l.output > 0 {
		l.usual = min(l.usual, l.output)
	}
	return l
}

// refers reports whether the request refers to content outside it, such as a
// document by its address or a prompt stored by the provider, whose length
// cannot be known. A request that continues an earlier answer of this session
// does not count.
func (x *exchange) refers() bool {
	if !x.bounded(func(l cell.Budget) bool { return l.Tokens != nil || l.CostUSD != nil }) {
		return false
	}
	body, err := dialect.ParseObject(x.body.Bytes())
	if err != nil {
		return false // it was read before
	}
	var allowed []string
	x.e.mu.Lock()
	if x.e.most > 0 {
		allowed = []string{x.facts.Continues}
	}
	x.e.mu.Unlock()
	_, refused := x.d.Restrict(x.call, body, allowed)
	return refused != ""
}

// bounded reports whether a budget of the session has such a limit.
func (x *exchange) bounded(so func(cell.Budget) bool) bool {
	return slices.ContainsFunc(x.s.accounts, func(a *ledger.Account) bool { return so(a.Limit()) })
}

// usualRate removes members of the request that would change the price of its
// tokens.
func (x *exchange) usualRate() {
	for _, name := range dialect.Dearer(x.body, x.d.Rates()) {
		x.s.find("price_tier", fmt.Sprintf("taken out of requests, because it changes the price of tokens: %s = %s; to use it, set it in the parameters of the model block, "+
			"with its price", name, clip(string(x.body.Get(name)))))
		x.body.Delete(name)
	}
}

// otherRate reports whether the parameters of a model choose another price than
// that of the table.
func (u *upstream) otherRate() bool {
	if u.model.Price != nil || u.dialect == nil || len(u.model.Parameters) == 0 {
		return false
	}
	p, err := dialect.ParseObject(u.model.Parameters)
	return err == nil && len(dialect.Dearer(p, u.dialect.Rates())) > 0
}
