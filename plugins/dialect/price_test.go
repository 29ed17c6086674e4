package dialect

import (
	"math"
	"testing"
)

func TestWhatIsNotKnownStaysUnknown(t *testing.T) {
	t.Parallel()
	full := &Price{Input: new(10.0), CachedInput: new(1.0), CacheWrite: new(20.0), Output: new(100.0)}
	partly := &Price{Input: new(10.0), Output: new(100.0)}
	tiers := &Price{
		Input: new(1.0), CachedInput: new(0.1), Output: new(4.0),
		Tiers: []PriceTier{{Above: 1000, Input: new(2.0), Output: new(6.0)}, {Above: 5000, Input: new(3.0), CachedInput: new(0.3), Output: new(9.0)}},
	}
	for _, tt := range []struct {
		name  string
		price *Price
		usage Usage
		want  float64
		known bool
	}{
		{"all kinds", full, Usage{Input: 1000, Cached: 600, CacheWrite: 100, Output: 50, Reasoning: 20}, 0.003 + 0.0006 + 0.002 + 0.005, true},
		{"written for an hour, without a price for that", full, Usage{Input: 1000, CacheWrite: 100, CacheHour: 50}, 0.009 + 0.001, false},
		{"no price", nil, Usage{Input: 1}, 0, false},
		{"no price and no use", nil, Usage{}, 0, true},
		{"cached input without a price", partly, Usage{Input: 1000, Cached: 600, Output: 10}, 0.004 + 0.001, false},
		{"up to the first tier", tiers, Usage{Input: 1000, Cached: 500, Output: 10}, 0.0005 + 0.00005 + 0.00004, true},
		{"above the first tier", tiers, Usage{Input: 1001, Output: 10}, 0.002002 + 0.00006, true},
		{"not known in that tier", tiers, Usage{Input: 1500, Cached: 500, Output: 10}, 0.002 + 0.00006, false},
		{"above the last tier", tiers, Usage{Input: 6000, Cached: 1000, Output: 10}, 0.015 + 0.0003 + 0.00009, true},
		{"nothing cached", partly, Usage{Input: 1000, Output: 10}, 0.011, true},
	} {
		got, known := tt.price.Cost(tt.usage)
		if math.Abs(got-tt.want) > 1e-12 || known != tt.known {
			t.Errorf("%s: %g, %v; want %g, %v", tt.name, got, known, tt.want, tt.known)
		}
	}
	for _, tt := range []struct {
		price *Price
		input int64
		want  float64
	}{{full, 1000, 0.021}, {tiers, 1000, 0.00104}, {tiers, 1001, 0.002062}, {tiers, 6000, 0.01809}, {nil, 9, 0}} {
		if got := tt.price.AtMost(tt.input, 10, false); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%d tokens cost at most %g, want %g", tt.input, got, tt.want)
		}
	}
	hourly := &Price{Input: new(10.0), CacheHour: new(20.0), Output: new(0.0)}
	for hour, want := range map[bool]float64{false: 0.01, true: 0.02} {
		if got := hourly.AtMost(1000, 10, hour); math.Abs(got-want) > 1e-12 {
			t.Errorf("with a cache of an hour %v: at most %g, want %g", hour, got, want)
		}
	}
	if got, known := tiers.Highest(); got != 9 || !known {
		t.Errorf("the dearest token is %g, %v", got, known)
	}
	tiers.Tiers[0].Output = nil
	if tiers.Bounds() || (*Price)(nil).Bounds() || !full.Bounds() {
		t.Error("a budget holds only with a price for every length")
	}
}
