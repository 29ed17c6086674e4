// Package matrix expands the matrix block of an experiment into points: the
// values that each cell has on the axes. It knows nothing of cells.
package matrix

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/plugins/suggest"
)

// MaxPoints bounds the cells of an experiment.
const MaxPoints = 10_000

// PartAxes are the axes that choose a part of the cell.
var PartAxes = []string{"agent", "model", "environment", "dataset"}

// Point is a cell before anything is read: the value that it has on each axis.
type Point []Value

// Value is one value of an axis.
type Value struct {
	Text string // for people: a label, a string as it is, or JSON
	Val  cty.Value
	id   string // equal for equal values only
}

// Axis is one free choice with its values.
type Axis struct {
	Name   string
	Values []Value
}

// Names are the names of the axes, in the order of the file.
func Names(block *hclsyntax.Block) []string {
	var names []string
	if block != nil {
		for _, a := range source.InOrder(block.Body.Attributes) {
			names = append(names, a.Name)
		}
	}
	return names
}

// Expand evaluates the axes and the points of a matrix block, the last axis
// fastest, then what is included. Without a block (nil) there is one point,
// without values. With errors there is none, and an axis that is wrong has no
// values. sc is a scope in which the matrix cannot be read.
func Expand(ctx context.Context, sc *eval.Scope, block *hclsyntax.Block) ([]Axis, []Point, hcl.Diagnostics) {
	if block == nil {
		return nil, []Point{{}}, nil
	}
	m := &expansion{ctx: ctx, sc: sc}
	for _, a := range source.InOrder(block.Body.Attributes) {
		m.axes = append(m.axes, Axis{a.Name, m.axis(a)})
	}
	if len(m.axes) == 0 {
		m.fail(block.DefRange(), "Matrix without an axis", "Write at least one, such as agent = [agent.a, agent.b], or remove the block.")
	}
	excludes, includes := m.rules(block, "exclude"), m.rules(block, "include")
	if m.broken {
		return m.axes, nil, m.diags
	}
	n := 1
	for _, a := range m.axes {
		if n *= len(a.Values); n > MaxPoints {
			m.fail(block.DefRange(), "Too many cells", "The axes make more than %d. Split the experiment, or leave out axes.", MaxPoints)
			return m.axes, nil, m.diags
		}
	}
	points := m.expand(excludes, includes)
	switch {
	case len(points) == 0:
		m.fail(block.DefRange(), "No cell is left", "The exclude blocks leave out every combination of the axes.")
	case len(points) > MaxPoints:
		m.fail(block.DefRange(), "Too many cells", "With the include blocks there are more than %d.", MaxPoints)
		return m.axes, nil, m.diags
	}
	return m.axes, points, m.diags
}

// expansion expands one matrix.
type expansion struct {
	ctx    context.Context //nolint:containedctx // lives as long as one call of Expand
	sc     *eval.Scope
	axes   []Axis
	diags  hcl.Diagnostics
	broken bool
}

func (m *expansion) fail(where hcl.Range, summary, format string, a ...any) {
	m.broken = true
	m.diags = append(m.diags, source.At(where, summary, format, a...))
}

// axis reads the values of one axis; none when something is wrong.
func (m *expansion) axis(a *hclsyntax.Attribute) []Value {
	wrong := func(format string, args ...any) []Value {
		m.fail(a.Expr.Range(), fmt.Sprintf("Axis %q cannot be used", a.Name), format, args...)
		return nil
	}
	v, ok := m.eval(a)
	switch t := v.Type(); {
	case !ok:
		return nil
	case len(eval.SecretsOf(v)) > 0:
		return wrong("The values of an axis name cells and are printed; they cannot depend on %s.", strings.Join(eval.SecretsOf(v), ", "))
	case !v.IsWhollyKnown(): // depends on something that has been reported
		m.broken = true
		return nil
	case v.IsNull() || !t.IsTupleType() && !t.IsListType() && !t.IsSetType():
		return wrong("Write the list of its values: %s = [ … ].", a.Name)
	case v.LengthInt() == 0:
		return wrong("It has no values, so there are no cells.")
	case v.LengthInt() > MaxPoints:
		return wrong("It has more than %d values.", MaxPoints)
	}
	var out []Value
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		value, problem := newValue(a.Name, e)
		if problem != "" {
			return wrong("%s", problem)
		}
		if slices.ContainsFunc(out, func(o Value) bool { return o.id == value.id }) {
			return wrong("It has %s twice. To repeat trials, set repeat in the experiment.", value.Text)
		}
		out = append(out, value)
	}
	return out
}

func (m *expansion) eval(a *hclsyntax.Attribute) (cty.Value, bool) {
	v, diags := m.sc.Eval(m.ctx, a.Expr)
	m.diags = append(m.diags, diags...)
	if diags.HasErrors() {
		m.broken = true
	}
	return v, !diags.HasErrors()
}

// newValue checks one value of an axis, and says what is wrong with it.
func newValue(axis string, v cty.Value) (Value, string) {
	if v.IsNull() {
		return Value{}, "A value of an axis must not be null."
	}
	kind, label, isRef := eval.AsRef(v)
	if slices.Contains(PartAxes, axis) && (!isRef || kind != axis) {
		return Value{}, fmt.Sprintf("This axis chooses the %s of a cell: write references such as %s.name. For anything else give the axis another name.", axis, axis)
	}
	if isRef {
		return Value{label, v, kind + "." + label}, ""
	}
	raw, err := (ctyjson.SimpleJSONValue{Value: v}).MarshalJSON()
	if err != nil {
		return Value{}, err.Error()
	}
	text := string(raw)
	if v.Type() == cty.String {
		text = v.AsString()
	}
	if len(text) > 1000 {
		return Value{}, "A value names cells: at most 1000 characters. Give the axis short names, and look the values up in a local."
	}
	return Value{text, v, string(raw)}, ""
}

// rule is an exclude or include block: for some axes, by index, the values.
type rule map[int][]Value

func (m *expansion) rules(matrix *hclsyntax.Block, kind string) []rule {
	var out []rule
	for _, b := range matrix.Body.Blocks {
		if b.Type != kind {
			continue
		}
		if len(b.Body.Attributes) == 0 {
			m.fail(b.DefRange(), "Empty "+kind, "Name at least one axis and its value.")
			continue
		}
		r := rule{}
		for _, a := range source.InOrder(b.Body.Attributes) {
			m.entry(r, a, kind)
		}
		out = append(out, r)
	}
	return out
}

// entry reads one attribute of a rule.
func (m *expansion) entry(r rule, a *hclsyntax.Attribute, kind string) {
	i := slices.IndexFunc(m.axes, func(x Axis) bool { return x.Name == a.Name })
	if i < 0 {
		var names []string
		for _, x := range m.axes {
			names = append(names, x.Name)
		}
		m.fail(a.NameRange, "Unknown axis", "The matrix has no axis %q.%s", a.Name, suggest.Hint(a.Name, names))
		return
	}
	v, ok := m.eval(a)
	if !ok || !v.IsWhollyKnown() || len(eval.SecretsOf(v)) > 0 {
		if ok {
			m.fail(a.Expr.Range(), "Wrong value for an axis", "It is not known here.")
		}
		return
	}
	axis := m.axes[i].Values
	if len(axis) == 0 {
		return // the axis itself is wrong
	}
	alternatives := []cty.Value{v}
	whole, _ := newValue(a.Name, v)
	onAxis := slices.ContainsFunc(axis, func(x Value) bool { return x.id == whole.id && whole.id != "" })
	if t := v.Type(); !onAxis && (t.IsTupleType() || t.IsListType() || t.IsSetType()) && !v.IsNull() {
		alternatives = v.AsValueSlice()
	}
	for _, alt := range alternatives {
		av, problem := newValue(a.Name, alt)
		if problem != "" {
			m.fail(a.Expr.Range(), "Wrong value for an axis", "%s", problem)
			return
		}
		if kind == "exclude" && !slices.ContainsFunc(axis, func(x Value) bool { return x.id == av.id }) {
			var texts []string
			for _, x := range axis {
				texts = append(texts, x.Text)
			}
			m.fail(a.Expr.Range(), "Value is not on the axis", "The axis %q has no %q, so nothing would be left out.%s", a.Name, av.Text, suggest.Hint(av.Text, texts))
			return
		}
		r[i] = append(r[i], av)
	}
}

// expand makes the product of the axes, the last axis fastest, without what is
// excluded, and then what is included and not there yet.
func (m *expansion) expand(excludes, includes []rule) []Point {
	var out []Point
	seen := map[string]bool{}
	add := func(p Point) {
		if id := p.id(); !seen[id] && len(out) <= MaxPoints {
			seen[id] = true
			out = append(out, p)
		}
	}
	values := make([][]Value, len(m.axes))
	for i, a := range m.axes {
		values[i] = a.Values
	}
	product(values, nil, func(p Point) bool {
		if !slices.ContainsFunc(excludes, func(r rule) bool { return r.matches(p) }) {
			add(p)
		}
		return true
	})
	for _, r := range includes {
		with := slices.Clone(values)
		for i, vs := range r {
			with[i] = vs
		}
		product(with, nil, func(p Point) bool {
			add(p)
			return len(out) <= MaxPoints
		})
	}
	return out
}

// product calls yield with each combination until it returns false.
func product(values [][]Value, head Point, yield func(Point) bool) bool {
	if len(values) == 0 {
		return yield(slices.Clone(head))
	}
	for _, v := range values[0] {
		if !product(values[1:], append(slices.Clip(head), v), yield) {
			return false
		}
	}
	return true
}

func (r rule) matches(p Point) bool {
	for i, vs := range r {
		if !slices.ContainsFunc(vs, func(v Value) bool { return v.id == p[i].id }) {
			return false
		}
	}
	return true
}

func (p Point) id() string {
	var b strings.Builder
	for _, v := range p {
		b.WriteString(strconv.Quote(v.id))
	}
	return b.String()
}
