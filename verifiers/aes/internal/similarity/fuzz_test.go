package similarity

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
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
		for _, o := range []Options{{}, {Published: true}, {Text: true}} {
			r, err := Compare(t.Context(), target, result, o)
			if err != nil && !errors.Is(err, ErrTarget) {
				t.Fatal(err)
			}
			if err == nil && (math.IsNaN(r.AES) || r.AES < 0 || r.AES > 1 || math.IsNaN(r.Strict) || r.Strict < 0 || r.Strict > r.AES+1e-9 && !o.Text) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// elements returns n elements with what pages have: boxes in a grid, texts of one to
// thirty words, colours and lengths.
func elements(n int) (all []el) {
	filters := []string{"text", "color", "background-color", "font-size", "has_text", "class", "text"}
	for i := range n {
		e := el{
			box:        [4]float64{float64(i%20) * 90, float64(i/20) * 50, 80, 40},
			text:       strings.Repeat(fmt.Sprintf("word%d other%d ", i, i%7), 1+i%15),
			attributes: by(filters[i%len(filters)], "text|color|background|border-radius|font-size|font-family|border"),
			style: map[string]string{
				"color": fmt.Sprintf("rgb(%d, 20, 30)", i), "background-color": fmt.Sprintf("rgba(0, %d, 30, 0.5)", i), "font-size": fmt.Sprintf("%dpx", 10+i%9),
				"font-family": "serif", "background": "rgb(0, 0, 0) linear-gradient(rgb(1, 2, 3), rgb(4, 5, 6))", "background-repeat": "repeat",
			},
		}
		maps.Copy(e.style, corner("3px", "4px"))
		maps.Copy(e.style, borders("1px", "2px"))
		e.attributes["class"] = fmt.Sprint("c", i%5)
		all = append(all, e)
	}
	return all
}

// BenchmarkCompare compares 200 elements with 200 that are moved and changed.
func BenchmarkCompare(b *testing.B) {
	all := elements(200)
	changed := elements(200)
	for i := range changed {
		changed[i].box[0] += float64(i%11) * 17
		changed[i].style["color"] = "rgb(9, 9, 9)"
	}
	slices.Reverse(changed)
	raw, err := json.Marshal(page(b, all))
	if err != nil {
		b.Fatal(err)
	}
	other, err := json.Marshal(page(b, changed))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer() // reading is not measured, and what is kept of texts is made anew
		target, err := Read(raw)
		if err != nil {
			b.Fatal(err)
		}
		result, err := Read(other)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err = Compare(b.Context(), target, result, Options{Published: true}); err != nil {
			b.Fatal(err)
		}
	}
}
