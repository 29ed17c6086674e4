package attest

import (
	"slices"
	"testing"
)

// A table of expected results is refused, or has known modes and results only.
func FuzzCatalogue(f *testing.F) {
	f.Add([]byte("attacks:\n  - name: r4-loop\n    lines: [R4]\n    results: {live: detected}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parse("attacks.yaml", text)
		if err != nil {
			return
		}
		for i := range c.Attacks {
			for mode, r := range c.Attacks[i].Results {
				if !slices.Contains(Modes, mode) || !slices.Contains([]Result{Held, Detected, NotHeld}, r) {
					t.Errorf("%s: mode %q with the result %q", c.Attacks[i].Name, mode, r)
				}
			}
		}
	})
}
