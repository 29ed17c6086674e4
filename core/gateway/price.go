package gateway

import (
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

// The values assumed for a model that neither its block nor the table
// describes.
const (
	assumedContext = 1 << 20
	assumedOutput  = 16384
)
