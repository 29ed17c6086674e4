package similarity

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

// No capture makes the measure panic, and a score is always from 0 to 1. A page that
// is equal to its target has pairs of elements that are equal.
func FuzzCompare(f *testing.F) {
	seed, err := json.Marshal(page(f, []el{{box: [4]float64{0, 0, 9, 9}, text: "a", attributes: by("text", "color|border|background|text-shadow|box-shadow"), style: map[string]string{"color": "rgb(1, 2, 3)", "background": "linear-gradient(rgb(1, 2, 3))"}}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(seed), string(seed))
	f.Add(string(seed), `{"version": 1, "states": [{"elements": [null]}]}`)
	f.Add(strings.Replace(string(seed), "color|", "nonsense||\\u0000|-width|", 1), string(seed))
	f.Fuzz(func(t *testing.T, a, b string) {
		target, err := Read([]byte(a))
		if err != nil {
			return
		}
		result, err := Read([]byte(b))
		if err != nil {
			return
		}
		r, err := Compare(t.Context(), target, result, false)
		if err != nil && !errors.Is(err, ErrTarget) {
			t.Fatal(err)
		}
		if err == nil && (math.IsNaN(r.AES) || r.AES < 0 || r.AES > 1 || math.IsNaN(r.Strict) || r.Strict < 0 || r.Strict > r.AES+1e-9) {
			t.Errorf("%+v", r)
		}
	})
}
