package main

import (
	"math"
	"testing"
)

// A file of scores is refused, or each score is a finite number with a name.
func FuzzReward(f *testing.F) {
	f.Add([]byte("1\n"))
	f.Add([]byte(`{"reward": 0.5, "speed": true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func([]byte) (map[string]float64, error){jsonFile, func(b []byte) (map[string]float64, error) { return numberFile(b, "reward") }} {
			scores, err := read(data)
			if (len(scores) == 0) != (err != nil) {
				t.Fatalf("%v, %v", scores, err)
			}
			for name, v := range scores {
				if name == "" || math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("score %q is %g", name, v)
				}
			}
		}
	})
}
