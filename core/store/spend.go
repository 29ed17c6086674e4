package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Spend is the use of models, in all roles. The zero value means no use.
type Spend struct {
	CostUSD  *float64 `json:"cost_usd,omitempty"` // null: not known, or no model was used
	Unpriced bool     `json:"unpriced,omitempty"` // a model was used whose price is not known
	Tokens   int64    `json:"tokens,omitempty"`   // input and output
	Requests int64    `json:"requests,omitempty"` // to models
	// Estimated is how many requests have a usage that the provider did not
	// report.
	Estimated int64 `json:"estimated_requests,omitempty"`
	// Fallback is how many requests a fallback served in place of the model.
	Fallback int64 `json:"fallback_requests,omitempty"`
}

// Add adds more. An unknown cost adds nothing to a known one.
func (s *Spend) Add(more Spend) {
	s.Tokens += more.Tokens
	s.Requests += more.Requests
	s.Estimated += more.Estimated
	s.Fallback += more.Fallback
	s.Unpriced = s.Unpriced || more.Unpriced
	if more.CostUSD == nil {
		return
	}
	sum := *more.CostUSD
	if s.CostUSD != nil {
		sum += *s.CostUSD
	}
	s.CostUSD = &sum
}

// exchange is the part of a line of record.ExchangesFile that is about usage.
type exchange struct {
	Request string `json:"request"`
	Retry   bool   `json:"retry"`
	Usage   *struct {
		Input  int64 `json:"input"`
		Output int64 `json:"output"`
	} `json:"usage"`
	CostUSD   *float64 `json:"cost_usd"`
	Estimated bool     `json:"estimated"`

	FallbackFor string `json:"fallback_for"`
}

// Bounds of reading a record of exchanges.
const (
	maxExchange  = 16 << 20 // bytes of one line
	maxExchanges = 4 << 30  // bytes of all of it
)

// Exchanged returns what the attempt in dir has used according to its record of
// exchanges. It leaves out a line that was cut off by a kill.
func Exchanged(dir string) (Spend, error) {
	var sum Spend
	counted := map[string]bool{} // requests that came to something
	cut, err := untrusted.Lines(dir, record.ExchangesFile, maxExchange, maxExchanges, func(line []byte) {
		var x exchange
		if json.Unmarshal(line, &x) != nil || x.Usage == nil {
			return // cut off by a kill, or without an effect
		}
		one := Spend{CostUSD: x.CostUSD, Unpriced: x.CostUSD == nil, Tokens: x.Usage.Input + x.Usage.Output}
		if !x.Retry || !counted[x.Request] {
			one.Requests = 1
		}
		counted[x.Request] = true
		if x.Estimated {
			one.Estimated = 1
		}
		if x.FallbackFor != "" {
			one.Fallback = one.Requests
		}
		sum.Add(one)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return sum, nil
	}
	if cut && err == nil {
		err = fmt.Errorf("%s: a line of it, or all of it, is too long to be read", filepath.Join(dir, record.ExchangesFile))
	}
	return sum, err
}
