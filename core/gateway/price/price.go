// Package price says what tokens cost: from the experiment, else from a table.
// What is not known stays unknown, which is not zero.
//
// It must not meter anything, and knows no provider but as data in the table.
package price

import (
	"cmp"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Of is the price of a model: that of its block, else, for a provider's own
// address, that of the table; nil when it is not known. A scripted model
// without a price is free.
func Of(table *dialect.Set, m *cell.Model) *cell.Price {
	zero := 0.0
	switch {
	case m.Price != nil:
		return m.Price
	case m.Provider == string(model.DialectScript):
		return &cell.Price{Input: &zero, CachedInput: &zero, CacheWrite: &zero, Output: &zero}
	case m.BaseURL != "":
		return nil // somebody else's price
	}
	return table.Known(m.Name).Price
}

// Limits are how many tokens a request to a model and its answer may have.
type Limits struct {
	Context int64 // of a request
	Output  int64 // of an answer; 0: not known
	Usual   int64 // that an answer is taken to have at most when the request does not bound it
}

// What is taken of a model that neither its block nor the table knows.
const (
	assumedContext = 1 << 20
	assumedOutput  = 16384
)

// LimitsOf a model are those of its block, else those of the table. Few answers
// are as long as the model allows, so Usual is less.
func LimitsOf(table *dialect.Set, m *cell.Model) Limits {
	known := table.Known(m.Name)
	l := Limits{
		Context: cmp.Or(m.ContextTokens, known.Context, assumedContext), Output: known.MaxOutput, Usual: cmp.Or(m.ReserveOutput, assumedOutput),
	}
	if l.Output > 0 {
		l.Usual = min(l.Usual, l.Output)
	}
	return l
}

const million = 1e6

// parts are the prices of a request.
type parts = cell.PriceTier

// all are the prices of a model, each with where it begins, in order.
func all(p *cell.Price) []parts {
	return append([]parts{{Above: -1, Input: p.Input, CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, CacheHour: p.CacheHour, Output: p.Output}}, p.Tiers...)
}

// Cost is what the usage of one request costs in USD; false: a price that it
// needs is not known.
func Cost(p *cell.Price, u dialect.Usage) (float64, bool) {
	if p == nil {
		return 0, u == dialect.Usage{}
	}
	var at parts
	for _, t := range all(p) {
		if u.Input > t.Above {
			at = t
		}
	}
	sum, known := 0.0, true
	for _, part := range []struct {
		tokens int64
		price  *float64
	}{
		{max(0, u.Input-u.Cached-u.CacheWrite), at.Input},
		{u.Cached, at.CachedInput},
		{u.CacheWrite - u.CacheHour, at.CacheWrite},
		{u.CacheHour, at.CacheHour},
		{u.Output, at.Output},
	} {
		switch {
		case part.tokens == 0:
		case part.price == nil:
			known = false
		default:
			sum += float64(part.tokens) / million * *part.price
		}
	}
	return sum, known
}

// AtMost is what a request with at most so many tokens costs at most; nothing
// when no price is known. hour says that input may be written to a cache for an
// hour. A kind of input without a price counts as the dearest
// other.
func AtMost(p *cell.Price, input, output int64, hour bool) float64 {
	if p == nil {
		return 0
	}
	most := 0.0
	for _, t := range all(p) {
		if input <= t.Above {
			break
		}
		in := dearest(t.Input, t.CachedInput, t.CacheWrite)
		if hour {
			in = max(in, dearest(t.CacheHour))
		}
		sum := float64(input) / million * in
		most = max(most, sum+float64(output)/million*dearest(t.Output))
	}
	return most
}

func dearest(prices ...*float64) float64 {
	top := 0.0
	for _, x := range prices {
		if x != nil {
			top = max(top, *x)
		}
	}
	return top
}

// Highest is the price of the dearest kind of token of a model; false when one
// that is always paid is not known.
func Highest(p *cell.Price) (float64, bool) {
	if !Bounds(p) {
		return 0, false
	}
	top := 0.0
	for _, t := range all(p) {
		top = max(top, dearest(t.Input, t.CachedInput, t.CacheWrite, t.CacheHour, t.Output))
	}
	return top, true
}

// Bounds says whether a budget in USD can be held with a price.
func Bounds(p *cell.Price) bool {
	if p == nil {
		return false
	}
	for _, t := range all(p) {
		if t.Input == nil || t.Output == nil {
			return false
		}
	}
	return true
}
