package prices

import "testing"

// A table of prices is refused, or has a price for each model.
func FuzzParse(f *testing.F) {
	f.Add([]byte("date: d\nsource: s\nmodels:\n  m: {input: 1, output: 2, tiers: [{above: 5, input: 2}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		models, err := parse(text)
		if (models == nil) != (err != nil) {
			t.Fatalf("%v, %v", models, err)
		}
		for name, m := range models {
			if m.Price == nil {
				t.Errorf("%q has no price", name)
			}
		}
	})
}
