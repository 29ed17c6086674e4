package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/berth-eval/berth/core/config/internal/eval"
)

// maxCells bounds the cells of an experiment.
const maxCells = 10_000

// blockAxes are the axes that choose a part of the cell.
var blockAxes = []string{"agent", "model", "environment", "dataset"}

// point is a cell before anything is read: the value that it has on each axis.
type point []axisValue

type axisValue struct {
	AxisValue

	val cty.Value
	id  string // equal for equal values only
}

// matrixOf is the matrix block, or nil.
func matrixOf(experiment *hclsyntax.Block) *hclsyntax.Block {
	for _, b := range experiment.Body.Blocks {
		if b.Type == "matrix" {
			return b
		}
	}
	return nil
}

// axes are the attributes of the matrix, in the order of the file.
func axes(experiment *hclsyntax.Block) []*hclsyntax.Attribute {
	if b := matrixOf(experiment); b != nil {
		return inOrder(b.Body.Attributes)
	}
	return nil
}

// matrix works out the points. Without a matrix there is one, with no values.
func (l *loader) matrix(experiment *hclsyntax.Block) []point {
	block := matrixOf(experiment)
	if block == nil {
		return []point{{}}
	}
	axes := axes(experiment)
	if len(axes) == 0 {
		l.broken = true
		l.diags = append(l.diags, at(block.DefRange(), "Matrix without an axis", "Write at least one, such as agent = [agent.a, agent.b], or remove the block."))
		return nil
	}
	sc := l.env.Outside(eval.Shape, "This is what the matrix is made of.")
	var values [][]axisValue
	for _, a := range axes {
		vs := l.axis(sc, a)
		l.broken = l.broken || len(vs) == 0
		values = append(values, vs)
		axis := Axis{Name: a.Name}
		for _, v := range vs {
			axis.Values = append(axis.Values, v.AxisValue)
		}
		l.exp.Axes = append(l.exp.Axes, axis)
	}
	m := &expansion{l: l, sc: sc, axes: axes, values: values}
	excludes, includes := m.rules(block, "exclude"), m.rules(block, "include")
	if l.broken {
		return nil
	}
	n := 1
	for _, vs := range values {
		if n *= len(vs); n > maxCells {
			l.broken = true
			l.diags = append(l.diags, at(block.DefRange(), "Too many cells", "The axes make more than %d. Split the experiment, or leave out axes.", maxCells))
			return nil
		}
	}
	points := m.expand(excludes, includes)
	if len(points) == 0 {
		l.broken = true
		l.diags = append(l.diags, at(block.DefRange(), "No cell is left", "The exclude blocks leave out every combination of the axes."))
	}
	if len(points) > maxCells {
		l.broken = true
		l.diags = append(l.diags, at(block.DefRange(), "Too many cells", "With the include blocks there are %d, at most %d are allowed.", len(points), maxCells))
		return nil
	}
	return points
}

// axis reads the values of one axis; none when something is wrong.
func (l *loader) axis(sc *eval.Scope, a *hclsyntax.Attribute) []axisValue {
	v, diags := sc.Eval(l.ctx, a.Expr)
	l.diags = append(l.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	wrong := func(format string, args ...any) []axisValue {
		l.diags = append(l.diags, at(a.Expr.Range(), fmt.Sprintf("Axis %q cannot be used", a.Name), format, args...))
		return nil
	}
	if !known(v) {
		if names := eval.Secrets(v); len(names) > 0 {
			return wrong("The values of an axis name cells and are printed; they cannot depend on %s.", strings.Join(names, ", "))
		}
		return nil // depends on something that has been reported
	}
	if t := v.Type(); v.IsNull() || !(t.IsTupleType() || t.IsListType() || t.IsSetType()) {
		return wrong("Write the list of its values: %s = [ … ].", a.Name)
	}
	if v.LengthInt() == 0 {
		return wrong("It has no values, so there would be no cells.")
	}
	if v.LengthInt() > maxCells {
		return wrong("It has more than %d values.", maxCells)
	}
	var out []axisValue
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		av, problem := newAxisValue(a.Name, e)
		if problem != "" {
			return wrong("%s", problem)
		}
		if slices.ContainsFunc(out, func(o axisValue) bool { return o.id == av.id }) {
			return wrong("It has %s twice. For repetitions write repeat in the experiment.", av.Text)
		}
		out = append(out, av)
	}
	return out
}

// newAxisValue checks one value of an axis, and says what is wrong with it.
func newAxisValue(axis string, v cty.Value) (axisValue, string) {
	if v.IsNull() {
		return axisValue{}, "A value of an axis must not be null."
	}
	kind, label, isRef := eval.AsRef(v)
	if slices.Contains(blockAxes, axis) && (!isRef || kind != axis) {
		return axisValue{}, fmt.Sprintf("This axis chooses the %s of a cell: write references such as %s.name. For anything else give the axis another name.", axis, axis)
	}
	if isRef {
		raw, err := json.Marshal(label)
		if err != nil {
			return axisValue{}, err.Error()
		}
		return axisValue{AxisValue{Text: label, JSON: raw}, v, kind + "." + label}, ""
	}
	raw, err := (ctyjson.SimpleJSONValue{Value: v}).MarshalJSON()
	if err != nil {
		return axisValue{}, err.Error()
	}
	text := string(raw)
	if v.Type() == cty.String {
		text = v.AsString()
	}
	if len(text) > 1000 {
		return axisValue{}, "A value names cells: at most 1000 characters. Give the axis short names, and look the values up in a local."
	}
	return axisValue{AxisValue{Text: text, JSON: raw}, v, string(raw)}, ""
}

// expansion makes points of axes and rules.
type expansion struct {
	l      *loader
	sc     *eval.Scope
	axes   []*hclsyntax.Attribute
	values [][]axisValue
}

// rule is an exclude or include block: for some axes, by index, the values.
type rule map[int][]axisValue

func (m *expansion) rules(matrix *hclsyntax.Block, kind string) []rule {
	var out []rule
	for _, b := range matrix.Body.Blocks {
		if b.Type != kind {
			continue
		}
		if len(b.Body.Attributes) == 0 {
			m.l.diags = append(m.l.diags, at(b.DefRange(), "Empty "+kind, "Name at least one axis and its value."))
			m.l.broken = true
			continue
		}
		r := rule{}
		for _, a := range inOrder(b.Body.Attributes) {
			m.entry(r, a, kind)
		}
		out = append(out, r)
	}
	return out
}

// entry reads one attribute of a rule.
func (m *expansion) entry(r rule, a *hclsyntax.Attribute, kind string) {
	fail := func(where hcl.Range, summary, format string, args ...any) {
		m.l.broken = true
		m.l.diags = append(m.l.diags, at(where, summary, format, args...))
	}
	i := slices.IndexFunc(m.axes, func(x *hclsyntax.Attribute) bool { return x.Name == a.Name })
	if i < 0 {
		var names []string
		for _, x := range m.axes {
			names = append(names, x.Name)
		}
		fail(a.NameRange, "Unknown axis", "The matrix has no axis %q.%s", a.Name, eval.Suggest(a.Name, names))
		return
	}
	v, diags := m.sc.Eval(m.l.ctx, a.Expr)
	m.l.diags = append(m.l.diags, diags...)
	if diags.HasErrors() || !known(v) {
		m.l.broken = true
		return
	}
	axis := m.values[i]
	if len(axis) == 0 {
		return // the axis itself is wrong
	}
	alternatives := []cty.Value{v}
	whole, _ := newAxisValue(a.Name, v)
	onAxis := slices.ContainsFunc(axis, func(x axisValue) bool { return x.id == whole.id && whole.id != "" })
	if t := v.Type(); !onAxis && (t.IsTupleType() || t.IsListType() || t.IsSetType()) && !v.IsNull() {
		alternatives = v.AsValueSlice()
	}
	for _, alt := range alternatives {
		av, problem := newAxisValue(a.Name, alt)
		if problem != "" {
			fail(a.Expr.Range(), "Wrong value for an axis", "%s", problem)
			return
		}
		if kind == "exclude" && !slices.ContainsFunc(axis, func(x axisValue) bool { return x.id == av.id }) {
			var texts []string
			for _, x := range axis {
				texts = append(texts, x.Text)
			}
			fail(a.Expr.Range(), "Value is not on the axis", "The axis %q has no %q, so nothing would be left out.%s", a.Name, av.Text, eval.Suggest(av.Text, texts))
			return
		}
		r[i] = append(r[i], av)
	}
}

// expand makes the product of the axes, the last axis fastest, without what is
// excluded, and then what is included and not there yet.
func (m *expansion) expand(excludes, includes []rule) []point {
	var out []point
	seen := map[string]bool{}
	add := func(p point) {
		if id := p.id(); !seen[id] && len(out) <= maxCells {
			seen[id] = true
			out = append(out, p)
		}
	}
	product(m.values, nil, func(p point) bool {
		if !slices.ContainsFunc(excludes, func(r rule) bool { return r.matches(p) }) {
			add(p)
		}
		return true
	})
	for _, r := range includes {
		values := slices.Clone(m.values)
		for i, vs := range r {
			values[i] = vs
		}
		product(values, nil, func(p point) bool {
			add(p)
			return len(out) <= maxCells
		})
	}
	return out
}

// product calls yield with each combination until it returns false.
func product(values [][]axisValue, head point, yield func(point) bool) bool {
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

func (r rule) matches(p point) bool {
	for i, vs := range r {
		if !slices.ContainsFunc(vs, func(v axisValue) bool { return v.id == p[i].id }) {
			return false
		}
	}
	return true
}

func (p point) id() string {
	var b strings.Builder
	for _, v := range p {
		b.WriteString(strconv.Quote(v.id))
	}
	return b.String()
}

// key names a cell: "agent=a,effort=low".
func key(axes []Axis, p point) string {
	parts := make([]string, len(p))
	for i, v := range p {
		text := v.Text
		if text == "" || strings.ContainsAny(text, ",=\"") || strconv.Quote(text) != `"`+text+`"` {
			text = strconv.Quote(text)
		}
		parts[i] = axes[i].Name + "=" + text
	}
	return strings.Join(parts, ",")
}

const maxSlug = 60

// slug makes a name for files of text, unique among those that are taken.
func slug(text, key string, taken map[string]bool) string {
	s := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, text), ".-_")
	if s == "" || len(s) > maxSlug || taken[s] {
		sum := sha256.Sum256([]byte(key + "\x00" + text))
		s = strings.TrimLeft(s[:min(len(s), maxSlug-13)]+"-"+hex.EncodeToString(sum[:6]), "-")
	}
	taken[s] = true
	return s
}
