package similarity

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// el is an element of a test: its box and what differs from an element of the test.
type el struct {
	box         [4]float64
	text        string
	attributes  map[string]string
	style       map[string]string
	html        string // its outer HTML; empty: made of the rest
	descendants int
	hidden      bool
	id          int64 // 0: its position
}

// page makes a capture of states of elements, and reads it as a verifier does.
func page(t testing.TB, states ...[]el) *Page {
	t.Helper()
	p := Page{Version: Version}
	for n, all := range states {
		s := State{}
		if n > 0 {
			s.Action = fmt.Sprint("action ", n)
		}
		text := func(v string) int {
			i := slices.Index(s.Strings, v)
			if i < 0 {
				i = len(s.Strings)
				s.Strings = append(s.Strings, v)
			}
			return i
		}
		names := map[string]bool{}
		for _, e := range all {
			for name := range e.style {
				names[name] = true
			}
		}
		s.Properties = slices.Sorted(maps.Keys(names))
		for i, e := range all {
			out := &Element{ID: e.id, Box: e.box, Displayed: !e.hidden, Descendants: e.descendants, TagName: text("DIV"), TextIndex: text(e.text), StyleIndex: i}
			if out.ID == 0 {
				out.ID = int64(i + 1)
			}
			out.HTMLIndex = text(cmp.Or(e.html, fmt.Sprint(out.ID, e)))
			for name, v := range e.attributes {
				out.Pairs = append(out.Pairs, text(name), text(v))
			}
			row := []int{}
			for _, name := range s.Properties {
				row = append(row, text(e.style[name]))
			}
			s.Styles, s.Elements = append(s.Styles, row), append(s.Elements, out)
		}
		p.States = append(p.States, s)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func by(filter, eval string) map[string]string {
	return map[string]string{"data-filter-by": filter, "data-evalby": eval}
}

func compare(t *testing.T, target, result *Page, unwritten bool) *Result {
	t.Helper()
	r, err := Compare(t.Context(), target, result, unwritten)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s is %.12g, want %.12g", what, got, want)
	}
}

// weight is that of an element.
func weight(area float64) float64 { return math.Pow(area, 0.8987018465995789) }

// byHand is a score that was worked out by hand.
type byHand struct {
	name           string
	target, result []el
	aes, strict    float64
}

func (tt *byHand) check(t *testing.T) {
	t.Helper()
	r := compare(t, page(t, tt.target), page(t, tt.result), false)
	near(t, tt.name+": aes", r.AES, tt.aes)
	near(t, tt.name+": aes_strict", r.Strict, tt.strict)
}

var (
	red, green = map[string]string{"color": "rgb(255, 0, 0)"}, map[string]string{"color": "rgb(0, 255, 0)"}
	hundred    = [4]float64{0, 0, 99, 99} // 100 × 100 with both edges
)

// Pairs, places and filters.
func TestScoresOfPairsByHand(t *testing.T) {
	t.Parallel()
	for _, tt := range []byHand{
		{
			// The box is the same: geometry 1, weight 46. The colours differ by 255 in two
			// parts: (1/256 + 1/256 + 1) ÷ 3, weight 30. 1/256 + … is above 0.01, so that
			// the filter by colour would fit, too.
			"another colour",
			[]el{{box: hundred, text: "a", attributes: by("text", "color"), style: red}},
			[]el{{box: hundred, text: "a", style: green}},
			(46 + 30*(2.0/256+1)/3) / 76, (46 + 30*(2.0/256+1)/3) / 76,
		},
		{
			// Moved by 50: 50 of 100 columns are common: 5000 ÷ 10000 ÷ 2 + 0.5 = 0.75.
			"another place, overlapping",
			[]el{{box: hundred, text: "a", attributes: by("text", "color"), style: red}},
			[]el{{box: [4]float64{50, 0, 99, 99}, text: "a", style: red}},
			(46*0.75 + 30) / 76, (46*0.75 + 30) / 76,
		},
		{
			// Moved by 200: nothing is common. Union 20000, around both 300 × 100 = 30000:
			// GIoU −1/3, geometry (1 − 1/3) ÷ 2 = 1/3.
			"another place, apart",
			[]el{{box: hundred, text: "a", attributes: by("text", "color"), style: red}},
			[]el{{box: [4]float64{200, 0, 99, 99}, text: "a", style: red}},
			(46.0/3 + 30) / 76, (46.0/3 + 30) / 76,
		},
		{
			// The filter does not fit: GIoU 1 − 1 = 0 is not below −1, so the pair stays,
			// and only the text, weight 6.8, is wrong.
			"another text",
			[]el{{box: hundred, text: "a", attributes: by("text", "text|color"), style: red}},
			[]el{{box: hundred, text: "b", style: red}},
			(46.0 + 30) / (46 + 30 + 6.8), (46.0 + 30) / (46 + 30 + 6.8),
		},
		{
			// GIoU −1/3 and another text: −4/3 is below −1. The pair is priced out: it
			// counts nowhere, and with 0 in the strict score. The other element is right.
			"priced out",
			[]el{
				{box: hundred, text: "a", attributes: by("text", "color"), style: red},
				{box: [4]float64{0, 500, 49, 49}, text: "c", attributes: by("text", "color"), style: red},
			},
			[]el{{box: [4]float64{200, 0, 99, 99}, text: "b", style: red}, {box: [4]float64{0, 500, 49, 49}, text: "c", style: red}},
			1, weight(49*49) / (weight(49*49) + weight(99*99)),
		},
		{
			// Two targets and one element, which is that of the second: the first is left
			// without any, and counts 0.
			"missing",
			[]el{
				{box: hundred, text: "a", attributes: by("text", "color"), style: red},
				{box: [4]float64{0, 500, 49, 49}, text: "c", attributes: by("text", "color"), style: red},
			},
			[]el{{box: [4]float64{0, 500, 49, 49}, text: "c", style: red}},
			weight(49*49) / (weight(49*49) + weight(99*99)), weight(49*49) / (weight(49*49) + weight(99*99)),
		},
		{"empty", []el{{box: hundred, text: "a", attributes: by("text", "color"), style: red}}, nil, 0, 0},
		{"hidden", []el{{box: hundred, text: "a", attributes: by("text", "color"), style: red}}, []el{{box: hundred, text: "a", style: red, hidden: true}}, 0, 0},
	} {
		tt.check(t)
	}
}

// Properties, and those that stand for several.
func TestScoresOfPropertiesByHand(t *testing.T) {
	t.Parallel()
	for _, tt := range []byHand{
		{
			// border-radius stands for four corners, of which one can be read: 10px and
			// 15px are 1 − 5/10 alike. The others are percentages, and have no part.
			"a shorthand of which a part can be read",
			[]el{{box: hundred, text: "a", attributes: by("text", "border-radius"), style: corner("10px", "50%")}},
			[]el{{box: hundred, text: "a", style: corner("15px", "50%")}},
			(46 + 100*0.5) / 146, (46 + 100*0.5) / 146,
		},
		{
			// border: four widths with 2.1 each. One of them is right, and three are
			// 1 − 1/2: (1 + 3·0.5)·2.1 ÷ 4 of 2.1.
			"a shorthand with a mean",
			[]el{{box: hundred, text: "a", attributes: by("text", "border"), style: borders("2px", "2px")}},
			[]el{{box: hundred, text: "a", style: borders("2px", "1px")}},
			(46 + 2.1*2.5/4) / 48.1, (46 + 2.1*2.5/4) / 48.1,
		},
		{
			// Eleven words: nine in common of thirteen different ones.
			"long texts",
			[]el{{box: hundred, text: "a b c d e f g h i j k", attributes: by("has_text", "text")}},
			[]el{{box: hundred, text: "a b c d e f g h i x y"}},
			(46 + 6.8*9/13) / 52.8, (46 + 6.8*9/13) / 52.8,
		},
		{"equal", []el{{box: hundred, text: "a", attributes: by("text", "color|nonsense||text"), style: red}}, []el{{box: hundred, text: " A ", style: red}}, 1, 1},
	} {
		tt.check(t)
	}
}

func corner(one, others string) map[string]string {
	return map[string]string{
		"border-bottom-left-radius": one, "border-bottom-right-radius": others, "border-top-left-radius": others, "border-top-right-radius": others,
	}
}

func borders(one, others string) map[string]string {
	return map[string]string{"border-bottom-width": others, "border-top-width": others, "border-left-width": others, "border-right-width": one}
}

// Each kind of change lowers the part that it belongs to, and nothing else.
func TestEachChangeLowersItsPart(t *testing.T) {
	t.Parallel()
	box := [4]float64{10, 10, 200, 50}
	style := func(color string) map[string]string { return map[string]string{"color": color} }
	full := func() []el {
		return []el{
			{box: box, text: "Title", attributes: by("text", "text|color"), style: style("rgb(10, 20, 30)")},
			{box: [4]float64{10, 100, 80, 30}, text: "Go", attributes: by("text", "text|color"), style: style("rgb(200, 20, 30)")},
		}
	}
	after := func() []el {
		all := full()
		all[1].text = "Gone"
		return all
	}
	target := page(t, full(), after())
	change := func(f func(*el)) *Page {
		a, b := full(), after()
		f(&a[0])
		f(&b[0])
		return page(t, a, b)
	}
	// The parts of the first element, the score of the second, and the two states.
	type parts struct{ geometry, color, text, other, load, action bool }
	for _, tt := range []struct {
		name   string
		result *Page
		less   parts
	}{
		{"nothing", page(t, full(), after()), parts{}},
		{"place", change(func(e *el) { e.box[0] += 300 }), parts{geometry: true, load: true}},
		{"size", change(func(e *el) { e.box[2] += 500; e.box[0] += 100 }), parts{geometry: true, load: true}},
		{"colour", change(func(e *el) { e.style = style("rgb(10, 200, 30)") }), parts{color: true, load: true}},
		{"text", change(func(e *el) { e.text = "Tittle" }), parts{text: true, load: true}},
		{"a missing element", page(t, full()[:1], after()[:1]), parts{other: true, load: true, action: true}},
		{"an action that changes nothing", page(t, full(), full()), parts{other: true, action: true}},
	} {
		r := compare(t, target, tt.result, false)
		if len(r.States) != 2 {
			t.Fatalf("%s: %+v", tt.name, r)
		}
		first, second, action := r.States[0].Elements[0], r.States[0].Elements[1], r.States[1].Elements[0]
		got := parts{
			first.Geometry < 1, first.Values["color"] < 1, first.Values["text"] < 1, second.Score < 1 || action.Score < 1, r.States[0].AES < 1, r.States[1].AES < 1,
		}
		if got != tt.less || (r.AES < 1) != (tt.less != parts{}) {
			t.Errorf("%s lowers %+v, want %+v: %+v", tt.name, got, tt.less, r)
		}
	}
	dead := page(t, full(), nil)
	dead.States[1].Failed = "ElementError: no element matches"
	r := compare(t, target, dead, false)
	load := weight(200*50) + weight(80*30) // and after the action the second element alone
	near(t, "an action that fails", r.AES, load/(load+weight(80*30)))
	if r.States[0].AES != 1 || r.States[1].AES != 0 || r.States[1].Failed == "" {
		t.Errorf("an action that fails: %+v", r)
	}
}

// After an action, only what it changed counts: elements whose HTML is that of one
// that stayed as it was are left out.
func TestOnlyWhatAnActionChangesCounts(t *testing.T) {
	t.Parallel()
	a := el{box: [4]float64{0, 0, 100, 100}, text: "stays", html: "<a>", attributes: by("text", "text")}
	b := el{box: [4]float64{0, 200, 50, 50}, text: "before", html: "<b>", attributes: by("text", "text"), id: 2}
	changed, twin := b, a
	changed.text, changed.html = "after", "<b2>"
	twin.id, twin.box = 9, [4]float64{300, 300, 100, 100} // new, but like one that stayed
	fresh := a
	fresh.id, fresh.html = 8, "<c>"
	target := page(t, []el{a, b}, []el{a, changed, twin, fresh})
	r := compare(t, target, target, false)
	if n := len(r.States[1].Elements); n != 2 || r.AES != 1 {
		t.Errorf("%d elements count after the action, want the changed one and the new one: %+v", n, r.States[1])
	}
}

// The filter decides which of two elements at the same place is the one, and an
// element with fewer descendants wins.
func TestFilters(t *testing.T) {
	t.Parallel()
	box := [4]float64{0, 0, 100, 100}
	for _, tt := range []struct {
		filter     string
		x, fits, y el
	}{
		{"text", el{text: "Yes"}, el{text: "yes "}, el{text: "no"}},
		{"color", el{style: map[string]string{"color": "rgb(0, 0, 0)"}}, el{style: map[string]string{"color": "rgb(9, 0, 0)"}}, el{style: map[string]string{"color": "rgb(255, 255, 255)"}}},
		{"width", el{style: map[string]string{"width": "10px"}}, el{style: map[string]string{"width": "12px"}}, el{style: map[string]string{"width": "20px"}}},
		{"display", el{style: map[string]string{"display": "flex"}}, el{style: map[string]string{"display": "flex"}}, el{style: map[string]string{"display": "block"}}},
		{"class", el{attributes: map[string]string{"class": "a"}}, el{attributes: map[string]string{"class": "a"}}, el{attributes: map[string]string{"class": "b"}}},
		{"letter-spacing", el{style: map[string]string{"letter-spacing": "2px"}}, el{style: map[string]string{"letter-spacing": "2px"}}, el{style: map[string]string{"letter-spacing": "normal"}}},
		{"has_text", el{text: "x"}, el{text: "x"}, el{text: "x", descendants: 1}},
	} {
		x := tt.x
		x.box, tt.fits.box, tt.y.box = box, box, box
		x.attributes = maps.Clone(by(tt.filter, "text"))
		maps.Copy(x.attributes, tt.x.attributes)
		for _, order := range [][]el{{tt.fits, tt.y}, {tt.y, tt.fits}} {
			order = slices.Clone(order)
			for i := range order {
				order[i].attributes = maps.Clone(order[i].attributes)
				if order[i].attributes == nil {
					order[i].attributes = map[string]string{}
				}
				order[i].attributes["id"] = "y"
			}
			for i, e := range order {
				if e.text == tt.fits.text && e.descendants == 0 && maps.Equal(e.style, tt.fits.style) && e.attributes["class"] == tt.fits.attributes["class"] {
					order[i].attributes["id"] = "fits"
				}
			}
			r := compare(t, page(t, []el{x}), page(t, order), false)
			if got := r.States[0].Elements[0].Result; !strings.HasPrefix(got, "div#fits") {
				t.Errorf("%s: %s was taken", tt.filter, got)
			}
		}
	}
}

// The errors of the published program are part of its measure.
func TestOddities(t *testing.T) {
	t.Parallel()
	box := [4]float64{0, 0, 100, 100}
	style := func(name, v string) map[string]string { return map[string]string{name: v} }
	for _, tt := range []struct {
		name, eval string
		x, y       el
		right      bool
	}{
		{"the width of a top border is that of the left one", "border-top-width", el{style: map[string]string{"border-top-width": "2px", "border-left-width": "5px"}}, el{style: map[string]string{"border-top-width": "1px", "border-left-width": "5px"}}, true},
		{"a bottom border is not a shorthand", "border-bottom", el{style: style("border-bottom-width", "2px")}, el{style: style("border-bottom-width", "1px")}, true},
		{"src agrees", "src", el{attributes: map[string]string{"src": "a"}}, el{attributes: map[string]string{"src": "b"}}, true},
		{"type agrees", "type", el{attributes: map[string]string{"type": "a"}}, el{}, true},
		{"placeholder compares the text", "placeholder", el{attributes: map[string]string{"placeholder": "a"}}, el{attributes: map[string]string{"placeholder": "b"}}, true},
		{"value compares the text", "value", el{text: "a", attributes: map[string]string{"value": "1"}}, el{text: "b", attributes: map[string]string{"value": "1"}}, false},
		{"there is always a text", "has_text", el{text: "x"}, el{}, true},
		{"an opaque shadow can be read", "box-shadow", el{style: style("box-shadow", "rgb(0, 0, 0) 0px 2px 4px 0px")}, el{style: style("box-shadow", "rgb(0, 0, 0) 0px 4px 4px 0px")}, false},
		{"one with an alpha value cannot", "box-shadow", el{style: style("box-shadow", "rgba(0, 0, 0, 0.5) 0px 2px 4px 0px")}, el{style: style("box-shadow", "rgba(0, 0, 0, 0.5) 0px 4px 4px 0px")}, true},
	} {
		tt.x.box, tt.y.box = box, box
		attributes := by("background-color", tt.eval)
		maps.Copy(attributes, tt.x.attributes)
		tt.x.attributes = attributes
		if r := compare(t, page(t, []el{tt.x}), page(t, []el{tt.y}), false); (r.AES == 1) != tt.right {
			t.Errorf("%s: %g", tt.name, r.AES)
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		like func(x, y string) (float64, bool)
		x, y string
		want float64 // below 0: it cannot be read
	}{
		{"length", likeLength, "10px", "12px", 0.8},
		{"length", likeLength, "10px", "30px", 0},
		{"length", likeLength, "0px", "0px", 1},
		{"length", likeLength, "0px", "1px", 0},
		{"length", likeLength, "-2px", "-1px", 0.5},
		{"length", likeLength, "10px", "50%", -1},
		{"length", likeLength, "10px", "auto", -1},
		{"length", likeLength, "10px", "10px 20px", -1},
		{"length", likeLength, "10px", "NaN", -1},
		{"length", likeLength, "10px", "1e999", -1},
		{"colour", likeColour, "rgb(255, 0, 0)", "rgb(255, 0, 128)", 1 - 0.5/3},
		{"colour", likeColour, "rgba(0, 0, 0, 0)", "rgb(0, 0, 0)", 1},
		{"colour", likeColour, "rgb(0, 0, 0)", "color(srgb 0 0 0)", -1},
		{"colour", likeColour, "rgb(0, 0, 0)", "rgb(0, 0)", -1},
		{"shadow", likeShadow, "rgb(0, 0, 0) 0px 2px 4px 0px", "rgb(0, 0, 0) 0px 1px 4px 0px", (2 + 1 + 0.5 + 1 + 1) / 6},
		{"shadow", likeShadow, "rgb(0, 0, 0) 0px 2px 4px 0px", "none", -1},
		{"shadow", likeShadow, "rgb(0, 0, 0) 0px 2px 4px 0px inset", "rgb(0, 0, 0) 0px 2px 4px 0px inset", -1},
		{"text-shadow", likeTextShadow, "rgb(0, 0, 0) 2px 2px 4px", "rgb(0, 0, 0) 1px 2px 4px", (2 + 0.5 + 1 + 1) / 5},
		{"text-shadow", likeTextShadow, "rgb(0, 0, 0) 2px 2px 4px", "none", 0},
		{"text-shadow", likeTextShadow, "none", "none", -1},
		{"text-shadow", likeTextShadow, "rgba(0, 0, 0, 0.5) 2px", "rgba(0, 0, 0, 0.5) 2px", -1},
		{"size", likeSize, "10px 20px", "5px 20px", 0.75},
		{"size", likeSize, "cover", "cover", -1},
		{"gradient", likeGradient, "linear-gradient(rgb(0, 0, 0), rgb(255, 255, 255))", "linear-gradient(rgb(0, 0, 0), rgb(255, 255, 127))", (1 + (1+1+0.5)/3) / 2},
		{"gradient", likeGradient, "none", "linear-gradient(rgb(0, 0, 0), rgb(255, 255, 127))", -1},
	} {
		got, ok := tt.like(tt.x, tt.y)
		if ok != (tt.want >= 0) || ok && math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%s of %q and %q: %g, %t; want %g", tt.name, tt.x, tt.y, got, ok, tt.want)
		}
	}
}

// A target that nothing can be compared with is the task's fault.
func TestTasksThatAreInvalid(t *testing.T) {
	t.Parallel()
	good := el{box: [4]float64{0, 0, 9, 9}, text: "a", attributes: by("text", "color")}
	failed := page(t, []el{good}, []el{good})
	failed.States[1].Failed = "ElementError"
	many := make([]el, maxTargets+1)
	for i := range many {
		many[i] = good
	}
	nothing := func(filter, eval string) *Page {
		e := good
		e.attributes = by(filter, eval)
		return page(t, []el{e})
	}
	without := good
	without.attributes = map[string]string{"data-filter-by": "text"}
	for name, target := range map[string]*Page{
		"an action fails": failed, "too many elements": page(t, many), "no element": page(t, nil), "an unknown filter": nothing("colour", "text"),
		"a filter that is none": nothing("box-shadow", "text"), "no data-evalby": page(t, []el{without}),
	} {
		if r, err := Compare(t.Context(), target, page(t, []el{good}), false); !errors.Is(err, ErrTarget) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
