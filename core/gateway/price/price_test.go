package price

import (
	"math"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/gateway/wire"
)

func TestWhatIsNotKnownStaysUnknown(t *testing.T) {
	t.Parallel()
	full := &config.Price{Input: new(10.0), CachedInput: new(1.0), CacheWrite: new(20.0), Output: new(100.0)}
	partly := &config.Price{Input: new(10.0), Output: new(100.0)}
	for _, tt := range []struct {
		name  string
		price *config.Price
		usage wire.Usage
		want  float64
		known bool
	}{
		{"all kinds", full, wire.Usage{Input: 1000, Cached: 600, CacheWrite: 100, Output: 50, Reasoning: 20}, 0.003 + 0.0006 + 0.002 + 0.005, true},
		{"no price", nil, wire.Usage{Input: 1}, 0, false},
		{"no price and no use", nil, wire.Usage{}, 0, true},
		{"cached input without a price", partly, wire.Usage{Input: 1000, Cached: 600, Output: 10}, 0.004 + 0.001, false},
		{"nothing cached", partly, wire.Usage{Input: 1000, Output: 10}, 0.011, true},
	} {
		got, known := Cost(tt.price, tt.usage)
		if math.Abs(got-tt.want) > 1e-12 || known != tt.known {
			t.Errorf("%s: %g, %v; want %g, %v", tt.name, got, known, tt.want, tt.known)
		}
	}
	if got := AtMost(full, 1000, 10); math.Abs(got-0.021) > 1e-12 {
		t.Errorf("at most %g", got)
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
	}
	for name := range table.Models {
		if table.Of(&config.Model{Name: name}) == nil {
			t.Errorf("%s is not found", name)
		}
		if table.Of(&config.Model{Name: name, BaseURL: "http://elsewhere"}) != nil {
			t.Errorf("%s has a price at somebody else's address", name)
		}
		own := &config.Price{Input: new(1.0)}
		if table.Of(&config.Model{Name: name, Price: own}) != own {
			t.Errorf("%s: the experiment's price does not win", name)
		}
		break
	}
	if table.Of(&config.Model{Name: "nobody-knows"}) != nil {
		t.Error("a price was invented")
	}
	if _, err := Parse([]byte("models: {}\n")); err == nil || !strings.Contains(err.Error(), "date") {
		t.Errorf("a table without a date: %v", err)
	}
}
