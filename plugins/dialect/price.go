package dialect

// Price is what a model costs, in USD per million tokens. A nil field is not
// known. A nil Price is not known either, which differs from a price of zero.
type Price struct {
	Input       *float64 `json:"input,omitempty" berth:"input" doc:"Price of input tokens that were not cached."`
	CachedInput *float64 `json:"cached_input,omitempty" berth:"cached_input" doc:"Price of input tokens read from the provider's cache."`
	CacheWrite  *float64 `json:"cache_write,omitempty" berth:"cache_write" doc:"Price of input tokens written to the provider's cache."`
	CacheHour   *float64 `json:"cache_write_1h,omitempty" berth:"cache_write_1h" doc:"Price of input tokens written to the provider's cache to be kept for an hour."`
	Output      *float64 `json:"output,omitempty" berth:"output" doc:"Price of output tokens, including reasoning."`
	// Tiers are sorted by Above, smallest first.
	Tiers []PriceTier `json:"tiers,omitempty" berth:"tier" doc:"Other prices for requests with more input; may be repeated."`
}

// PriceTier holds the prices of a request with more than Above input tokens.
// They apply to all of its tokens. A nil field is not known.
type PriceTier struct {
	Above       int64    `json:"above" berth:"above" required:"true" doc:"Requests with more input tokens than this have these prices, for all their tokens."`
	Input       *float64 `json:"input,omitempty" berth:"input" doc:"Price of input tokens that were not cached."`
	CachedInput *float64 `json:"cached_input,omitempty" berth:"cached_input" doc:"Price of input tokens read from the provider's cache."`
	CacheWrite  *float64 `json:"cache_write,omitempty" berth:"cache_write" doc:"Price of input tokens written to the provider's cache."`
	CacheHour   *float64 `json:"cache_write_1h,omitempty" berth:"cache_write_1h" doc:"Price of input tokens written to the provider's cache to be kept for an hour."`
	Output      *float64 `json:"output,omitempty" berth:"output" doc:"Price of output tokens, including reasoning."`
}

const million = 1e6

// all returns the prices of a model with their lower bounds, in order.
func (p *Price) all() []PriceTier {
	return append([]PriceTier{{Above: -1, Input: p.Input, CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, CacheHour: p.CacheHour, Output: p.Output}}, p.Tiers...)
}

// Cost returns the cost of the usage of one request in USD; false if a price
// that it needs is not known.
func (p *Price) Cost(u Usage) (float64, bool) {
	if p == nil {
		return 0, u == Usage{}
	}
	var at PriceTier
	for _, t := range p.all() {
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
func (p *Price) AtMost(input, output int64, hour bool) float64 {
	if p == nil {
		return 0
	}
	most := 0.0
	for _, t := range p.all() {
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
func (p *Price) Highest() (float64, bool) {
	if !p.Bounds() {
		return 0, false
	}
	top := 0.0
	for _, t := range p.all() {
		top = max(top, dearest(t.Input, t.CachedInput, t.CacheWrite, t.CacheHour, t.Output))
	}
	return top, true
}

// Bounds reports whether a budget in USD can be enforced with the price.
func (p *Price) Bounds() bool {
	if p == nil {
		return false
	}
	for _, t := range p.all() {
		if t.Input == nil || t.Output == nil {
			return false
		}
	}
	return true
}
