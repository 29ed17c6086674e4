package price

import (
	"math"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/dialect"
)

func TestWhatIsNotKnownStaysUnknown(t *testing.T) {
	t.Parallel()
	full := &cell.Price{Input: new(10.0), CachedInput: new(1.0), CacheWrite: new(20.0), Output: new(100.0)}
	partly := &cell.Price{Input: new(10.0), Output: new(100.0)}
	tiers := &cell.Price{
		Input: new(1.0), CachedInput: new(0.1), Output: new(4.0),
		Tiers: []cell.PriceTier{{Above: 1000, Input: new(2.0), Output: new(6.0)}, {Above: 5000, Input: new(3.0), CachedInput: new(0.3), Output: new(9.0)}},
	}
	for _, tt := range []struct {
		name  string
		price *cell.Price
		usage dialect.Usage
		want  float64
		known bool
	}{
		{"all kinds", full, dialect.Usage{Input: 1000, Cached: 600, CacheWrite: 100, Output: 50, Reasoning: 20}, 0.003 + 0.0006 + 0.002 + 0.005, true},
		{"no price", nil, dialect.Usage{Input: 1}, 0, false},
		{"no price and no use", nil, dialect.Usage{}, 0, true},
		{"cached input without a price", partly, dialect.Usage{Input: 1000, Cached: 600, Output: 10}, 0.004 + 0.001, false},
		{"up to the first tier", tiers, dialect.Usage{Input: 1000, Cached: 500, Output: 10}, 0.0005 + 0.00005 + 0.00004, true},
		{"above the first tier", tiers, dialect.Usage{Input: 1001, Output: 10}, 0.002002 + 0.00006, true},
		{"not known in that tier", tiers, dialect.Usage{Input: 1500, Cached: 500, Output: 10}, 0.002 + 0.00006, false},
		{"above the last tier", tiers, dialect.Usage{Input: 6000, Cached: 1000, Output: 10}, 0.015 + 0.0003 + 0.00009, true},
		{"nothing cached", partly, dialect.Usage{Input: 1000, Output: 10}, 0.011, true},
	} {
		got, known := Cost(tt.price, tt.usage)
		if math.Abs(got-tt.want) > 1e-12 || known != tt.known {
			t.Errorf("%s: %g, %v; want %g, %v", tt.name, got, known, tt.want, tt.known)
		}
	}
	for _, tt := range []struct {
		price *cell.Price
		input int64
		want  float64
	}{{full, 1000, 0.021}, {tiers, 1000, 0.00104}, {tiers, 1001, 0.002062}, {tiers, 6000, 0.01809}, {nil, 9, 0}} {
		if got := AtMost(tt.price, tt.input, 10); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%d tokens cost at most %g, want %g", tt.input, got, tt.want)
		}
	}
	if got, known := Highest(tiers); got != 9 || !known {
		t.Errorf("the dearest token is %g, %v", got, known)
	}
	tiers.Tiers[0].Output = nil
	if Bounds(tiers) || Bounds(nil) || !Bounds(full) {
		t.Error("a budget holds only with a price for every length")
	}
}

func TestTheShippedTable(t *testing.T) {
	t.Parallel()
	table := Shipped()
	if len(table.Models) < 20 {
		t.Fatalf("%d models", len(table.Models))
	}
	for name, p := range table.Models {
		if p.Input == nil || p.Output == nil || *p.Input <= 0 || *p.Output < *p.Input || (p.CachedInput != nil && *p.CachedInput > *p.Input) {
			t.Errorf("%s has an odd price", name)
		}
		for i, tier := range p.Tiers {
			if tier.Input == nil || tier.Output == nil || *tier.Input <= *p.Input || (tier.CachedInput == nil) != (p.CachedInput == nil) ||
				i > 0 && tier.Above <= p.Tiers[i-1].Above || tier.Above < 1000 {
				t.Errorf("%s has an odd tier", name)
			}
		}
	}
	for name := range table.Models {
		if table.Of(&cell.Model{Name: name}) == nil {
			t.Errorf("%s is not found", name)
		}
		if table.Of(&cell.Model{Name: name, BaseURL: "http://elsewhere"}) != nil {
			t.Errorf("%s has a price at somebody else's address", name)
		}
		own := &cell.Price{Input: new(1.0)}
		if table.Of(&cell.Model{Name: name, Price: own}) != own {
			t.Errorf("%s: the experiment's price does not win", name)
		}
		break
	}
	if table.Of(&cell.Model{Name: "nobody-knows"}) != nil {
		t.Error("a price was invented")
	}
	if _, err := Parse([]byte("models: {}\n")); err == nil || !strings.Contains(err.Error(), "date") {
		t.Errorf("a table without a date: %v", err)
	}
}
