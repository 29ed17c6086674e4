package gateway

import (
	"cmp"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// PriceOf returns the price of a model: that of its block or else, at a provider's
// own address, that of the table; nil when it is not known. A scripted model
// without a price is free.
func PriceOf(table *dialect.Set, m *cell.Model) *dialect.Price {
	zero := 0.0
	switch {
	case m.Price != nil:
		return m.Price
	case m.Provider == string(model.DialectScript):
		return &dialect.Price{Input: &zero, CachedInput: &zero, CacheWrite: &zero, Output: &zero}
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
		Context: cmp.Or(m.ContextTokens, known.Context, assumedContext), Output: known.MaxOutput, Usual: assumedOutput,
	}
	if l.Output > 0 {
		l.Usual = min(l.Usual, l.Output)
	}
	return l
}
