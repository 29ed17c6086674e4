// Package prices holds the shipped table of prices and limits of models. It has
// a date and a source.
package prices

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/yamltext"
)

//go:embed prices.yaml
var shipped []byte

// table is the content of the file. Prices are in USD per million tokens.
type table struct {
	Date   string           `yaml:"date"`
	Source string           `yaml:"source"`
	Models map[string]entry `yaml:"models"`
}

type entry struct {
	Price     `yaml:",inline"`
	Tiers     []Price `yaml:"tiers"` // smallest first
	Context   int64   `yaml:"context"`
	MaxOutput int64   `yaml:"max_output"`
	Image     int64   `yaml:"image"`
}

// Price is the price of a model, or of one of its tiers.
type Price struct {
	Above       int64    `yaml:"above"` // of a tier only
	Input       *float64 `yaml:"input"`
	CachedInput *float64 `yaml:"cached_input"`
	CacheWrite  *float64 `yaml:"cache_write"`
	CacheHour   *float64 `yaml:"cache_write_1h"`
	Output      *float64 `yaml:"output"`
}

// Shipped returns the table of this program, by the names of models.
var Shipped = sync.OnceValue(func() map[string]dialect.Known {
	models, err := parse(shipped)
	if err != nil {
		panic("the shipped price table is broken: " + err.Error())
	}
	return models
})

func parse(b []byte) (map[string]dialect.Known, error) {
	var t table
	if err := yamltext.Unmarshal(b, true, &t); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	if t.Date == "" || t.Source == "" {
		return nil, fmt.Errorf("prices: a table has a date and a source")
	}
	models := map[string]dialect.Known{}
	for name, e := range t.Models {
		p := &dialect.Price{Input: e.Input, CachedInput: e.CachedInput, CacheWrite: e.CacheWrite, CacheHour: e.CacheHour, Output: e.Output}
		for _, t := range e.Tiers {
			p.Tiers = append(p.Tiers, dialect.PriceTier(t))
		}
		models[name] = dialect.Known{Price: p, Context: e.Context, MaxOutput: e.MaxOutput, ImageTokens: e.Image}
	}
	return models, nil
}
