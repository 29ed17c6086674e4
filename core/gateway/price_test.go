package gateway

import (
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/dialect"
)

func TestAPriceIsOfTheBlockOrOfTheTable(t *testing.T) {
	t.Parallel()
	table := &dialect.Set{Models: func() map[string]dialect.Known {
		return map[string]dialect.Known{"m1": {Price: &dialect.Price{Input: new(1.0), Output: new(2.0)}}}
	}}
	if p := PriceOf(table, &cell.Model{Name: "models/m1"}); p == nil || *p.Output != 2 {
		t.Errorf("m1 is not found: %+v", p)
	}
	if PriceOf(table, &cell.Model{Name: "m1", BaseURL: "http://elsewhere"}) != nil {
		t.Error("there is a price at somebody else's address")
	}
	own := &dialect.Price{Input: new(1.0)}
	if PriceOf(table, &cell.Model{Name: "m1", Price: own}) != own {
		t.Error("the experiment's price does not win")
	}
	if PriceOf(table, &cell.Model{Name: "nobody-knows"}) != nil {
		t.Error("a price was invented")
	}
}
