// Package price computes the cost of tokens, with prices from the experiment or
// else from a table. An unknown cost stays unknown, which differs from zero.
//
// It must not meter anything, and knows providers only as data in the table.
package price

import (
	"cmp"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Of returns the price of a model: that of its block or else, at a provider's
// own address, that of the table; nil when it is not known. A scripted model
// without a price is free.
func Of(table *dialect.Set, m *cell.Model) *cell.Price {
	zero := 0.0
	switch {
	case m.Price != nil:
		return m.Price
	case m.Provider == string(model.DialectScript):
		return &cell.Price{Input: &zero, CachedInput: &zero, CacheWrite: &zero, Output: &zero}
	case m.BaseURL != "":
		return nil // the price of another provider
	}
	return table.Known(m.Name).Price
}

// Limits are the largest numbers of tokens of a request to a model and of its
// answer.
type Limits struct {
	Context int64 // of a request
	Output  int64 // of an answer; 0: not known
	Usual   int64 // assumed limit of an answer when the request does not set one
}

// The values assumed for a model that neither its block nor the table
// describes.
const (
	assumedContext = 1 << 20
	assumedOutput  = 16384
)

// LimitsOf returns the limits of a model from its block, or else from the
// table. Usual is lower than the model's limit, because few answers are that
// long.
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

// all returns the prices of a model with their lower bounds, in order.
func all(p *cell.Price) []parts {
	return append([]parts{{Above: -1, Input: p.Input, CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, CacheHour: p.CacheHour, Output: p.Output}}, p.Tiers...)
}

// Cost returns the cost of the usage of one request in USD; false if a price
// that it needs is not known.
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

// AtMost returns the largest possible cost of a request with these numbers of
// tokens; 0 when no price is known. hour says that input may be cached for an
// hour. A kind of input without a price counts at the highest other price.
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

// Highest returns the price of the most expensive kind of token of a model;
// false when a price that always applies is not known.
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

// Bounds reports whether a budget in USD can be enforced with a price.
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
