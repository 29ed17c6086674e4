package timeline

import (
	"slices"
	"strings"

	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// effect is an item of the track for effects.
type effect struct {
	kind       string
	start, end float64
	params     document.Object
}

// maxEffects is how many effects are read.
const maxEffects = 2000

// effects returns the effects of all tracks.
func effects(export document.Object) (all []effect) {
	tracks, _ := export["timeline"].(document.List)
	for _, t := range tracks {
		items, _ := document.Get(t, "effectSubTrack", "items").(document.List)
		for _, i := range items {
			kind, _ := document.Get(i, "type").(string)
			e := effect{kind: strings.ToLower(kind)}
			e.start, _ = document.Number(document.Get(i, "startTimeMs"))
			e.end, _ = document.Number(document.Get(i, "endTimeMs"))
			e.params, _ = document.Get(i, "params").(document.Object)
			if len(all) < maxEffects {
				all = append(all, e)
			}
		}
	}
	return all
}

// is reports whether a parameter has a value. One that is not there has the
// editor's default.
func (e *effect) is(name string, value, otherwise float64) bool {
	return document.Within(e.param(name, otherwise), value, 1e-6)
}

func (e *effect) param(name string, otherwise float64) float64 {
	if f, ok := document.Number(e.params[name]); ok {
		return f
	}
	return otherwise
}

// contrasts reports whether a light effect raises the contrast and nothing else.
func (e *effect) contrasts() bool {
	return e.param("contrast", 1) > 1 && e.is("brightness", 0, 0) && e.is("saturation", 1, 1)
}

// spans reports whether an effect begins and ends at these times.
func (e *effect) spans(start, end, tolerance float64) bool {
	return document.Within(e.start, start, tolerance) && document.Within(e.end, end, tolerance)
}

// Lengths of the light effect of scenario 14, and of a fade at the end of a clip.
const (
	lightMs = 4000
	fadeMs  = 3000
)

// checkEffects checks the effects of the scenarios that have any.
func checkEffects(d *diff.List, scenario int, blocks []block, items []effect, timeMs float64) {
	var lights, fades []effect
	for _, e := range items {
		switch e.kind {
		case "light-adjustment":
			lights = append(lights, e)
		case "fade-out":
			fades = append(fades, e)
		}
	}
	switch scenario {
	case 7:
		if len(lights) > 0 && !onClip(lights, blocks, func(e *effect, c *block) bool {
			return e.spans(c.start, c.end(), timeMs) && e.contrasts()
		}) {
			d.Add("no light effect covers a whole clip with more contrast and unchanged brightness and saturation")
		}
	case 11:
		if one(d, fades) {
			atEnd(d, &fades[0], blocks, timeMs)
		}
	case 14:
		if !slices.ContainsFunc(lights, func(e effect) bool { return e.spans(0, lightMs, timeMs) && e.contrasts() }) {
			d.Add("no light effect raises the contrast, and nothing else, in the first %d ms", lightMs)
		}
		if !one(d, fades) {
			return
		}
		fade := &fades[0]
		atEnd(d, fade, blocks, timeMs)
		curve, _ := fade.params["curve"].(string)
		if !strings.EqualFold(curve, "ease-out") {
			d.Add("the curve of the fade is %s, expected \"ease-out\"", document.Show(fade.params["curve"]))
		}
		if !fade.is("fromOpacity", 1, 1) || !fade.is("toOpacity", 0, 0) {
			d.Add("the fade goes from %g to %g, expected from 1 to 0", fade.param("fromOpacity", 1), fade.param("toOpacity", 0))
		}
	}
}

// one reports whether there is exactly one fade.
func one(d *diff.List, fades []effect) bool {
	if len(fades) != 1 {
		d.Add("it has %d fade-outs, expected 1", len(fades))
	}
	return len(fades) == 1
}

// atEnd checks that a fade is at the end of a clip.
func atEnd(d *diff.List, fade *effect, blocks []block, timeMs float64) {
	if !onClip([]effect{*fade}, blocks, func(e *effect, c *block) bool { return e.spans(c.end()-fadeMs, c.end(), timeMs) }) {
		d.Add("the fade-out from %g to %g ms does not cover the last %d ms of a clip", fade.start, fade.end, fadeMs)
	}
}

// onClip reports whether an effect and a video clip fit.
func onClip(effects []effect, blocks []block, fit func(*effect, *block) bool) bool {
	return slices.ContainsFunc(effects, func(e effect) bool {
		return slices.ContainsFunc(blocks, func(b block) bool { return b.kind == "VIDEO" && fit(&e, &b) })
	})
}
