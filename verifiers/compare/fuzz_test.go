package main

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// comparators are all comparators with their usual settings.
var comparators = []func(given) (outcome, error){
	func(g given) (outcome, error) {
		share := 0.05
		return compareFields(g, &FieldsConfig{TimeMinutes: 1, RelativeTolerance: &share, UnorderedObjectKeys: []string{"a", "b"}, ToleranceFields: map[string]float64{"a": 1}})
	},
	func(g given) (outcome, error) {
		return compareTimeline(g, &TimelineConfig{TimeMs: 1000})
	},
	func(g given) (outcome, error) { return compareGraph(g, &Inputs{}) },
	func(g given) (outcome, error) { return compareScene(g, &SceneConfig{Tolerance: 0.15}) },
	func(g given) (outcome, error) { return compareCircuit(g, &CircuitConfig{RelativeTolerance: 0.05}) },
}

var seeds = []string{
	`{"a": [1, "x"], "b": {"c": null}, "t": "14:05"}`, `{"answer": "{\"a\": 1}"}`, `[{"a": 1}, {"b": 2}]`, `{"a": 1e999}`, "```json\n{}\n```",
	clip(0, 4000), nodes(1, 2), box("1"),
	`{"scenes": [` + box("1") + `]}`,
	`<cir><L x="0 -16 1 1"/><L x="0 16 1 1"/><And x="0 0 64 0" in="2"/><M x="64 0 1 1"/></cir>`,
	"$ 1\nL 0 -16 1 1\nL 0 16 1 1\n150 0 0 64 0 0 2\nM 64 0 1 1\n",
	`send_msg_to_user("{\"a\": [1]}")`, `{{{"`, `"\"`,
}

// No input makes a comparator panic, gives a score that is not a share, or fails for
// another reason than a bad truth. What an agent wrote is never an error.
func FuzzCompare(f *testing.F) {
	for _, truth := range seeds {
		for _, predicted := range seeds {
			f.Add(truth, predicted, true)
		}
		f.Add(truth, truth, false)
	}
	f.Fuzz(func(t *testing.T, truth, predicted string, file bool) {
		for i, compare := range comparators {
			o, err := compare(given{truth: truth, predicted: prediction{texts: []string{predicted}, file: file}})
			var wrong unusable
			if err != nil && !errors.Is(err, document.ErrTruth) && !errors.As(err, &wrong) {
				t.Errorf("comparator %d: %v", i, err)
			}
			if math.IsNaN(o.score) || o.score < 0 || o.score > 1 || err != nil && o.score != 0 {
				t.Errorf("comparator %d: score %g with %v", i, o.score, err)
			}
			if len(o.diffs.String()) > 4000 {
				t.Errorf("comparator %d: a text of %d bytes", i, len(o.diffs.String()))
			}
		}
	})
}

// Inputs that are large in every way end soon, and only the scene among others
// passes.
func TestLargeInputs(t *testing.T) {
	t.Parallel()
	list := func(one string, n int) string { return "[" + strings.Repeat(one+",", n) + one + "]" }
	many := map[string]string{
		"fields":  `{"a": ` + list(`{"b": 1, "c": 2}`, 30_000) + `}`,
		"strings": `{"a": ` + list(`"x"`, 300_000) + `}`,
		"elements": `{"operations": [{"type": "EXPORT_COMPLETE", "data": {"timeline": [{"elements": ` +
			list(`{"mediaType": "VIDEO", "mediaName": "a", "startTimeMs": 0, "durationMs": 1}`, 50_000) + `}]}}]}`,
		"nodes":   `{"nodes": ` + list(`{"id": "1", "type": "x"}`, 30_000) + `, "edges": []}`,
		"objects": `{"scenes": ` + list(box("1"), 10_000) + `}`,
		"wires":   "<cir>" + strings.Repeat(`<w x="0 0 1 1"/>`, 200_000) + "</cir>",
		"fences":  strings.Repeat("```json\n{\n", 50_000),
		"braces":  strings.Repeat("{", 1<<20),
		"quotes":  strings.Repeat(`{"`, 1<<19),
	}
	for i, truth := range []string{`{"a": [{"b": 1, "c": 2}]}`, clip(0, 1), nodes(1, 2), box("1"), seeds[9]} {
		for name, text := range many {
			for _, file := range []bool{false, true} {
				o, err := comparators[i](given{truth: truth, predicted: prediction{texts: []string{text}, file: file}})
				if errors.Is(err, document.ErrTruth) || o.score > 0 && (i != 3 || name != "objects") {
					t.Errorf("%s: comparator %d gives %g, %v", name, i, o.score, err)
				}
			}
		}
	}
}
