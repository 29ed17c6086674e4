package timeline

import (
	"path"
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
	shift      float64 // by which times were moved
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

// scenario checks the effects of the scenarios that have any.
func (s *Settings) scenario(d *diff.List, scenario int, blocks []block, items []effect) {
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
		clips := named(blocks, s.LightClip)
		if len(lights) > 0 && !some(lights, clips, func(e *effect, c *block) bool {
			return e.spans(c.start, c.end(), s.TimeMs) && e.contrasts()
		}) {
			d.Add("no light effect covers a whole clip with more contrast and unchanged brightness and saturation")
		}
	case 11:
		if one(d, fades) {
			s.atEnd(d, &fades[0], blocks)
		}
	case 14:
		starts := []block{{}}
		if s.LightClip != "" {
			starts = named(blocks, s.LightClip)
		}
		if !some(lights, starts, func(e *effect, c *block) bool {
			return e.spans(c.start, c.start+s.LightMs, s.TimeMs) && e.contrasts()
		}) {
			d.Add("no light effect raises the contrast, and nothing else, in the first %g ms", s.LightMs)
		}
		if !one(d, fades) {
			return
		}
		fade := &fades[0]
		if s.FadeMs > 0 {
			s.atEnd(d, fade, blocks)
		}
		curve, _ := fade.params["curve"].(string)
		if !strings.EqualFold(curve, "ease-out") {
			d.Add("the curve of the fade is %s, expected \"ease-out\"", document.Show(fade.params["curve"]))
		}
		if !fade.is("fromOpacity", 1, 1) || !fade.is("toOpacity", 0, 0) {
			d.Add("the fade goes from %g to %g, expected from 1 to 0", fade.param("fromOpacity", 1), fade.param("toOpacity", 0))
		}
	}
}

// same checks that the effects are those of the truth, each as often as there. Times
// may differ, also those among the parameters.
func (s *Settings) same(d *diff.List, expected, items []effect) {
	free := slices.Clone(items)
	for i := range expected {
		e := &expected[i]
		at := slices.IndexFunc(free, func(p effect) bool {
			return e.kind == p.kind && p.spans(e.start, e.end, s.TimeMs) && s.sameParams(e, &p)
		})
		if at < 0 {
			d.Add("the effect %s from %g to %g ms is not there with its parameters", document.Show(e.kind), e.start, e.end)
			continue
		}
		free = slices.Delete(free, at, at+1)
	}
	for _, p := range free {
		d.Add("the effect %s from %g to %g ms is not expected", document.Show(p.kind), p.start, p.end)
	}
}

// sameParams compares the parameters that the expected effect has.
func (s *Settings) sameParams(e, p *effect) bool {
	for key, want := range e.params {
		x, okX := document.Number(want)
		y, okY := document.Number(p.params[key])
		tolerance := 1e-6
		if strings.HasSuffix(key, "Ms") {
			y -= p.shift
			tolerance = s.TimeMs
		}
		a, okA := document.Text(want)
		b, okB := document.Text(p.params[key])
		if okX && okY && document.Within(x, y, tolerance) || !okX && okA && okB && a == b {
			continue
		}
		return false
	}
	return true
}

// one reports whether there is exactly one fade.
func one(d *diff.List, fades []effect) bool {
	if len(fades) != 1 {
		d.Add("it has %d fade-outs, expected 1", len(fades))
	}
	return len(fades) == 1
}

// atEnd checks that a fade is at the end of a clip.
func (s *Settings) atEnd(d *diff.List, fade *effect, blocks []block) {
	if !some([]effect{*fade}, named(blocks, s.FadeClip), func(e *effect, c *block) bool {
		return e.spans(c.end()-s.FadeMs, c.end(), s.TimeMs)
	}) {
		d.Add("the fade-out from %g to %g ms does not cover the last %g ms of a clip", fade.start, fade.end, s.FadeMs)
	}
}

// some reports whether an effect and a clip fit.
func some(effects []effect, clips []block, fit func(*effect, *block) bool) bool {
	return slices.ContainsFunc(effects, func(e effect) bool {
		return slices.ContainsFunc(clips, func(c block) bool { return fit(&e, &c) })
	})
}

// named returns the video clips of that name, or all.
func named(blocks []block, name string) (clips []block) {
	for _, b := range blocks {
		short := strings.TrimSuffix(b.name, path.Ext(b.name))
		if b.kind == "VIDEO" && (name == "" || strings.EqualFold(name, short) || strings.EqualFold(name, b.name)) {
			clips = append(clips, b)
		}
	}
	return clips
}
