package prices

import (
	"strings"
	"testing"
)

func TestTheShippedTable(t *testing.T) {
	t.Parallel()
	models := Shipped()
	if len(models) < 20 {
		t.Fatalf("%d models", len(models))
	}
	for name, k := range models {
		p := k.Price
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
	if _, err := parse([]byte("models: {}\n")); err == nil || !strings.Contains(err.Error(), "date") {
		t.Errorf("a table without a date: %v", err)
	}
}
