package similarity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Result is how similar a page is to its target.
type Result struct {
	AES    float64 `json:"aes"`        // 0 to 1
	Strict float64 `json:"aes_strict"` // with pairs that are priced out counted as 0
	// Lost and LostStrict are what is missing to 1 in both, by its cause.
	Lost       Losses `json:"lost"`
	LostStrict Losses `json:"lost_strict"`
	States     []Part `json:"states"`
}

// Losses are parts of what is missing to 1, by their causes.
type Losses struct {
	Par  float64 `json:"par"`  // no page was written
	Ren  float64 `json:"ren"`  // the page could not be opened, or shows nothing
	Act  float64 `json:"act"`  // the action could not be done
	Mat  float64 `json:"mat"`  // elements without a partner
	Attr float64 `json:"attr"` // what differs in elements with one
}

// add adds a part of others.
func (l *Losses) add(o Losses, share float64) {
	l.Par, l.Ren, l.Act, l.Mat, l.Attr = l.Par+o.Par*share, l.Ren+o.Ren*share, l.Act+o.Act*share, l.Mat+o.Mat*share, l.Attr+o.Attr*share
}

// of returns the losses as shares of a weight. Where nothing has a weight, no element
// has a partner.
func (l Losses) of(weight float64) (shares Losses) {
	if weight <= 0 {
		return Losses{Mat: 1}
	}
	shares.add(l, 1/weight)
	return shares
}

// Part is the result of one state.
type Part struct {
	Action   string  `json:"action,omitempty"`
	Failed   string  `json:"failed,omitempty"` // why the action could not be done on the result
	Cut      bool    `json:"cut,omitempty"`    // the result has more elements than were captured
	AES      float64 `json:"aes"`
	Strict   float64 `json:"aes_strict"`
	Weight   float64 `json:"weight"`        // of the elements that count
	Strictly float64 `json:"strict_weight"` // with pairs that are priced out
	Elements []Pair  `json:"elements,omitempty"`

	lost   Losses  // weights, without pairs that are priced out
	priced float64 // their weights
}

// Pair is an element of the target, with the one of the result that was found for
// it.
type Pair struct {
	Target   string             `json:"target"`
	Result   string             `json:"result,omitempty"` // empty: there is none
	Priced   bool               `json:"priced_out,omitempty"`
	Weight   float64            `json:"weight"`
	Score    float64            `json:"score"`
	Geometry float64            `json:"geometry"`
	Values   map[string]float64 `json:"properties,omitempty"` // similarity of each property that could be read
}

// ErrTarget means that the target cannot be compared with anything: the task is
// invalid.
var ErrTarget = errors.New("the task is invalid")

// The numbers of the published program.
const (
	geometryWeight = 46
	areaExponent   = 0.8987018465995789
	perDescendant  = 1e-5 // that an element of the result loses
	misfit         = -1.0
	unreadable     = -0.01
	leastValue     = -1.0 // of a pair; those below are priced out
	priced         = 1e5  // the cost of such a pair
)

// maxTargets bounds the elements of a state of the target that count.
const maxTargets = 1000

// Compare compares the result with the target, state by state. unwritten: the agent
// wrote no page.
func Compare(ctx context.Context, target, result *Page, unwritten bool) (*Result, error) {
	m := &measure{unwritten, properties()}
	r := &Result{}
	var score, weight, strictly float64
	var lost, lostStrict Losses // in all elements together
	counted := false
	for i := range target.States {
		t := &target.States[i]
		if t.Cut {
			return nil, fmt.Errorf("%w: its own page has more elements than are captured", ErrTarget)
		}
		if t.Failed != "" {
			return nil, fmt.Errorf("%w: its own page fails, %s: %s", ErrTarget, named(i, t.Action), t.Failed)
		}
		elements, err := m.targets(target.States, i)
		if err != nil {
			return nil, err
		}
		var p Part
		switch {
		case i >= len(result.States):
			p = m.failed(elements, i, "the result has no such state")
		case result.States[i].Failed != "":
			p = m.failed(elements, i, result.States[i].Failed)
		default:
			if p, err = m.compare(ctx, elements, &result.States[i]); err != nil {
				return nil, err
			}
		}
		p.Action = t.Action
		r.States = append(r.States, p)
		strict := p.lost
		strict.Mat += p.priced
		counted = counted || len(elements) > 0
		lost.add(p.lost, 1)
		lostStrict.add(strict, 1)
		score, weight, strictly = score+p.AES*p.Weight, weight+p.Weight, strictly+p.Strictly
	}
	if !counted {
		return nil, fmt.Errorf("%w: no element of its page counts: give some data-filter-by and data-evalby", ErrTarget)
	}
	r.AES, r.Strict, r.Lost, r.LostStrict = share(score, weight), share(score, strictly), lost.of(weight), lostStrict.of(strictly)
	return r, nil
}

func named(i int, action string) string {
	if i == 0 {
		return "when it is loaded"
	}
	return fmt.Sprintf("at action %d, %s", i, action)
}

// share returns a part of a sum from 0 to 1. Nothing of nothing is 0. Sums of equal
// numbers in another order may differ in their last digits.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return min(1, max(0, part/whole))
}

// measure compares the elements of pages.
type measure struct {
	unwritten bool
	all       map[string]property
}

// weight is how much an element counts.
func (e *Element) weight() float64 { return math.Pow(e.area(), areaExponent) }

// targets returns the elements of a state of the target that count. After an action
// those whose HTML is that of an element that it left as it was do not.
func (m *measure) targets(states []State, i int) (all []*Element, err error) {
	kept := map[string]bool{}
	if i > 0 {
		before := map[int64]string{}
		for _, e := range states[i-1].Elements {
			before[e.ID] = e.html()
		}
		for _, e := range states[i].Elements {
			if was, ok := before[e.ID]; ok && was == e.html() {
				kept[was] = true
			}
		}
	}
	for _, e := range states[i].Elements {
		by, ok := e.Attribute("data-filter-by")
		_, ok2 := e.Attribute("data-evalby")
		if ok && ok2 && e.counts() && m.filter(by) != nil && !kept[e.html()] {
			all = append(all, e)
		}
	}
	if len(all) > maxTargets {
		err = fmt.Errorf("%w: %d elements of its page count, at most %d are allowed", ErrTarget, len(all), maxTargets)
	}
	return all, err
}

func (e *Element) html() string {
	if e.HTMLIndex < 0 {
		return fmt.Sprintf("\x00%d", e.ID) // like no other
	}
	return e.of.Strings[e.HTMLIndex]
}

// filter returns the property that elements are filtered by; nil: it is none.
func (m *measure) filter(name string) *property {
	p, ok := m.all[name]
	if !ok || p.filter < 0 {
		return nil
	}
	return &p
}

// failed is a state in which nothing of the result counts.
func (m *measure) failed(elements []*Element, state int, why string) (p Part) {
	p.Failed = why
	cause := &p.lost.Act
	if state == 0 {
		cause = &p.lost.Ren
	}
	for _, e := range elements {
		m.add(&p, Pair{Target: e.String(), Weight: e.weight()}, cause)
	}
	return p
}

// add counts an element, and what is lost in it by its cause. AES is a sum until the
// end of compare.
func (m *measure) add(p *Part, e Pair, cause *float64) {
	p.Elements = append(p.Elements, e)
	p.Strictly += e.Weight
	if e.Priced {
		p.priced += e.Weight
		return
	}
	p.Weight += e.Weight
	p.AES += e.Score * e.Weight
	if m.unwritten {
		cause = &p.lost.Par
	}
	*cause += (1 - e.Score) * e.Weight
}

// compare compares a state.
func (m *measure) compare(ctx context.Context, elements []*Element, result *State) (p Part, err error) {
	var others []*Element
	for _, e := range result.Elements {
		if e.counts() {
			others = append(others, e)
		}
	}
	costs, err := m.costs(ctx, elements, others)
	if err != nil {
		return p, err
	}
	for i, j := range solve(costs) {
		x := elements[i]
		e, cause := Pair{Target: x.String(), Weight: x.weight()}, &p.lost.Mat
		switch {
		case len(others) == 0:
			cause = &p.lost.Ren
		case j < 0:
		case costs.costs[i*costs.columns+j] > -leastValue:
			e.Priced = true
		default:
			e.Result, cause = others[j].String(), &p.lost.Attr
			m.score(&e, x, others[j])
		}
		m.add(&p, e, cause)
	}
	p.Cut, p.AES, p.Strict = result.Cut, share(p.AES, p.Weight), share(p.AES, p.Strictly)
	return p, ctx.Err()
}

// costs returns what each pair costs: its value below 0.
func (m *measure) costs(ctx context.Context, targets, others []*Element) (matrix, error) {
	c := matrix{rows: len(targets), columns: len(others), costs: make([]float64, 0, len(targets)*len(others))}
	for _, x := range targets {
		if ctx.Err() != nil {
			return c, context.Cause(ctx)
		}
		by, _ := x.Attribute("data-filter-by")
		filter := m.filter(by)
		for _, y := range others {
			value := giou(x.Box, y.Box) - float64(y.Descendants)*perDescendant
			if v, ok := filter.similar(x, y); !ok {
				value += unreadable
			} else if v <= filter.filter {
				value += misfit
			}
			if value < leastValue {
				value = -priced
			}
			c.costs = append(c.costs, -value)
		}
	}
	return c, nil
}

// score compares two elements.
func (m *measure) score(e *Pair, x, y *Element) {
	e.Geometry, e.Values = geometry(x.Box, y.Box), map[string]float64{}
	sum, weights := e.Geometry*geometryWeight, float64(geometryWeight)
	by, _ := x.Attribute("data-evalby")
	for name := range strings.SplitSeq(by, "|") {
		part, weight, n := 0.0, 0.0, 0.0
		for _, p := range parts(name, x) {
			known := m.all[p]
			if known.weight == 0 {
				continue
			}
			v, ok := known.similar(x, y)
			if !ok {
				continue
			}
			e.Values[p] = v
			part, weight, n = part+v*known.weight, weight+known.weight, n+1
		}
		if n > 0 {
			sum, weights = sum+part/n, weights+weight/n
		}
	}
	e.Score = share(sum, weights)
}

// box are the corners of a rectangle.
type box struct{ left, top, right, bottom float64 }

func corners(b [4]float64) box { return box{b[0], b[1], b[0] + b[2], b[1] + b[3]} }

// area counts pixels, with those on both edges.
func (b box) area() float64 { return (b.right - b.left + 1) * (b.bottom - b.top + 1) }

// overlap returns the areas that two rectangles have in common, and together, and
// the one of the rectangle around both.
func overlap(x, y box) (common, union, around float64) {
	w, h := min(x.right, y.right)-max(x.left, y.left)+1, min(x.bottom, y.bottom)-max(x.top, y.top)+1
	common = max(0, w) * max(0, h)
	around = box{min(x.left, y.left), min(x.top, y.top), max(x.right, y.right), max(x.bottom, y.bottom)}.area()
	return common, x.area() + y.area() - common, around
}

// giou is the generalized intersection over union of two rectangles: −1 to 1.
func giou(a, b [4]float64) float64 {
	common, union, around := overlap(corners(a), corners(b))
	return common/union - (around-union)/around
}

// geometry is how similar two rectangles are, from 0 to 1: at least a half if they
// overlap.
func geometry(a, b [4]float64) float64 {
	x, y := corners(a), corners(b)
	common, union, around := overlap(x, y)
	if common > 0 {
		return common/min(x.area(), y.area())/2 + 0.5
	}
	return (1 - (around-union)/around) / 2
}
