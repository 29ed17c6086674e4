// Package price says what tokens cost: from the experiment, else from the
// table that is shipped, which is dated and names its source. What is not known
// stays unknown, which is not zero.
//
// It must not meter anything, and knows no provider but as data in the table.
package price

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/gateway/wire"
	"github.com/berth-eval/berth/plugins/model"
)

//go:embed prices.yaml
var shipped []byte

// Table is a price list. Prices are in USD per million tokens.
type Table struct {
	Date   string                `yaml:"date"`
	Source string                `yaml:"source"`
	Models map[string]tokenPrice `yaml:"models"`
}

type tokenPrice struct {
	Input       *float64 `yaml:"input"`
	CachedInput *float64 `yaml:"cached_input"`
	CacheWrite  *float64 `yaml:"cache_write"`
	Output      *float64 `yaml:"output"`
}

// Shipped is the table of this program.
var Shipped = sync.OnceValue(func() *Table {
	t, err := Parse(shipped)
	if err != nil {
		panic("gateway: the table of prices is broken: " + err.Error())
	}
	return t
})

// Parse reads a table.
func Parse(b []byte) (*Table, error) {
	t := &Table{}
	if err := yaml.UnmarshalWithOptions(b, t, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	if t.Date == "" || t.Source == "" {
		return nil, fmt.Errorf("prices: a table has a date and a source")
	}
	return t, nil
}

// Of is the price of a model: that of its block, else, for a provider's own
// address, that of the table; nil when it is not known. A scripted model
// without a price is free.
func (t *Table) Of(m *config.Model) *config.Price {
	zero := 0.0
	switch {
	case m.Price != nil:
		return m.Price
	case m.Provider == string(model.DialectScript):
		return &config.Price{Input: &zero, CachedInput: &zero, CacheWrite: &zero, Output: &zero}
	case m.BaseURL != "":
		return nil // somebody else's price
	}
	p, ok := t.Models[strings.TrimPrefix(m.Name, "models/")]
	if !ok {
		return nil
	}
	return &config.Price{Input: p.Input, CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, Output: p.Output}
}

const million = 1e6

// Cost is what usage costs in USD; false: a price that it needs is not known.
func Cost(p *config.Price, u wire.Usage) (float64, bool) {
	if p == nil {
		return 0, u == wire.Usage{}
	}
	sum, known := 0.0, true
	for _, part := range []struct {
		tokens int64
		price  *float64
	}{
		{max(0, u.Input-u.Cached-u.CacheWrite), p.Input},
		{u.Cached, p.CachedInput},
		{u.CacheWrite, p.CacheWrite},
		{u.Output, p.Output},
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

// AtMost is what so many tokens cost at most; nothing when no price is known.
// A kind of input without a price counts as the dearest other.
func AtMost(p *config.Price, input, output int64) float64 {
	if p == nil {
		return 0
	}
	dearest := 0.0
	for _, x := range []*float64{p.Input, p.CachedInput, p.CacheWrite} {
		if x != nil {
			dearest = max(dearest, *x)
		}
	}
	sum := float64(input) / million * dearest
	if p.Output != nil {
		sum += float64(output) / million * *p.Output
	}
	return sum
}

// Bounds says whether a budget in USD can be held with a price.
func Bounds(p *config.Price) bool { return p != nil && p.Input != nil && p.Output != nil }
