package config

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-eval/berth/core/config/internal/eval"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// scopes are the three evaluations of one cell.
type scopes struct{ shape, label, real *eval.Scope }

// reading is one block as it is in one cell: its tree of plain values, and what
// was found on the way.
type reading struct {
	ctx    context.Context //nolint:containedctx // a reading lives as long as one call of read
	scopes *scopes
	block  *hclsyntax.Block
	diags  hcl.Diagnostics
	masks  []hcl.Range // secrets written into the file, not to be shown
	holes  map[pluginconfig.Path]*hole
	// unknown are values that are wrong, or depend on something that is.
	unknown []pluginconfig.Path
	broken  bool
	config  map[string]*hclsyntax.Block // bodies that a plugin describes, by name
}

// read evaluates the fields of a block and returns them as JSON that fits them.
// What is wrong or unknown is not in it, and then the reading is broken.
func read(ctx context.Context, sc *scopes, b *hclsyntax.Block, fs []field) (*reading, json.RawMessage) {
	r := &reading{ctx: ctx, scopes: sc, block: b, holes: map[pluginconfig.Path]*hole{}, config: map[string]*hclsyntax.Block{}}
	tree := r.body(b.Body, fs, "")
	raw, err := json.Marshal(tree)
	if err != nil { // numbers are checked before, everything else always marshals
		r.fail(b.DefRange(), "Value cannot be stored", "%s.", err)
		r.broken = true
		return r, nil
	}
	ps := schemaOf(fs).Problems(raw)
	r.report(ps)
	if !r.broken && len(r.unknown) == 0 && !r.diags.HasErrors() {
		return r, raw
	}
	r.broken = true
	for _, p := range ps {
		r.unknown = append(r.unknown, p.Path)
	}
	for _, f := range schemaOf(fs).Fields {
		if r.isUnknown(pluginconfig.Path(f.Name)) {
			delete(tree, f.Name)
			if f.Required {
				tree[f.Name] = zero(f.Type)
			}
		}
	}
	raw, err = json.Marshal(tree)
	if err != nil {
		return r, nil
	}
	return r, raw
}

// isUnknown says whether something at or below the field that path begins with
// is wrong or unknown.
func (r *reading) isUnknown(path pluginconfig.Path) bool {
	first := func(p pluginconfig.Path) string {
		if i := strings.IndexAny(string(p), ".["); i >= 0 {
			p = p[:i]
		}
		return string(p)
	}
	return slices.ContainsFunc(r.unknown, func(u pluginconfig.Path) bool { return first(u) == first(path) })
}

// zero stands for a required value that is missing, so that the rest can be
// checked.
func zero(t pluginconfig.Type) any {
	switch t {
	case pluginconfig.Bool:
		return false
	case pluginconfig.Int, pluginconfig.Float:
		return 0
	case pluginconfig.Duration:
		return "0s"
	default:
	}
	if _, ok := t.List(); ok {
		return []any{}
	}
	if _, ok := t.Map(); ok || t == pluginconfig.Block {
		return map[string]any{}
	}
	return ""
}

func schemaOf(fs []field) pluginconfig.Schema {
	var s pluginconfig.Schema
	for _, f := range fs {
		if f.body == "config" || f.many {
			continue
		}
		s.Fields = append(s.Fields, f.Field)
	}
	return s
}

// report places problems with the values in the file, without those that
// follow from others.
func (r *reading) report(ps []pluginconfig.Problem) {
	for _, p := range ps {
		if !r.isUnknown(p.Path) || p.Path == "" {
			r.diags = append(r.diags, locate(r.block, p))
		}
	}
}

func (r *reading) fail(at hcl.Range, summary, format string, a ...any) {
	r.diags = append(r.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, a...), Subject: &at,
	})
}

func (r *reading) body(b *hclsyntax.Body, fs []field, path pluginconfig.Path) map[string]any {
	tree := map[string]any{}
	for _, f := range fs {
		if a := b.Attributes[f.Name]; a != nil && f.isAttribute() {
			if v, ok := r.attribute(a, f, path.Attr(f.Name)); ok {
				tree[f.Name] = v
			}
		}
		if f.isBlock() && !f.many {
			r.blocks(b, f, path.Attr(f.Name), tree)
		}
	}
	return tree
}

// blocks reads the blocks of one field into tree.
func (r *reading) blocks(b *hclsyntax.Body, f field, path pluginconfig.Path, tree map[string]any) {
	var items []any
	byLabel := map[string]any{}
	for _, inner := range b.Blocks {
		if inner.Type != f.Name {
			continue
		}
		switch {
		case f.body == "config":
			r.config[f.Name] = inner
		case f.body == "free":
			tree[f.Name] = r.freeBody(inner.Body, path)
		case f.Type == pluginconfig.Block:
			if tree[f.Name] == nil {
				tree[f.Name] = r.body(inner.Body, f.fields, path)
			}
		case f.Type == pluginconfig.BlockList:
			items = append(items, r.body(inner.Body, f.fields, path.Index(len(items))))
		case f.Type == pluginconfig.BlockMap && len(inner.Labels) == 1:
			label := inner.Labels[0]
			if byLabel[label] != nil {
				r.fail(inner.DefRange(), fmt.Sprintf("The %s %q is there twice", f.Name, label), "Rename or remove one of them.")
			}
			byLabel[label] = r.body(inner.Body, f.fields, path.Key(label))
		}
	}
	if items != nil {
		tree[f.Name] = items
	}
	if len(byLabel) > 0 {
		tree[f.Name] = byLabel
	}
}

func (r *reading) freeBody(b *hclsyntax.Body, path pluginconfig.Path) map[string]any {
	tree := map[string]any{}
	for _, a := range inOrder(b.Attributes) {
		f := field{Field: pluginconfig.Field{Name: a.Name, Type: pluginconfig.Any}}
		if v, ok := r.attribute(a, f, path.Attr(a.Name)); ok {
			tree[a.Name] = v
		}
	}
	return tree
}

// attribute is the value of one attribute. Not ok: absent, unknown or wrong.
func (r *reading) attribute(a *hclsyntax.Attribute, f field, path pluginconfig.Path) (any, bool) {
	v, diags := r.scopes.shape.Eval(r.ctx, a.Expr)
	r.diags = append(r.diags, diags...)
	if diags.HasErrors() {
		r.unknown = append(r.unknown, path)
		return nil, false
	}
	if f.ref != "" {
		return r.references(v, a, f, path)
	}
	want := ctyType(f.Type)
	v, err := convert.Convert(v, want)
	if err != nil {
		r.unknown = append(r.unknown, path)
		r.fail(a.Expr.Range(), fmt.Sprintf("Wrong value for %q", f.Name), "%s.", conversion(f.Type, err))
		return nil, false
	}
	l := leaf{r: r, attr: a, field: f, want: want}
	return l.tree(v, path, nil, nil)
}

// conversion says what was wanted, and where in the value it was not found.
func conversion(t pluginconfig.Type, err error) string {
	where := ""
	if pe, ok := err.(cty.PathError); ok && len(pe.Path) > 0 { //nolint:errorlint // convert returns it unwrapped
		where = " at " + ctyPath(pe.Path)
	}
	return fmt.Sprintf("Wanted %s: %s%s", t, err, where)
}

func ctyPath(p cty.Path) string {
	out := pluginconfig.Path("")
	for _, s := range p {
		switch s := s.(type) {
		case cty.GetAttrStep:
			out = out.Key(s.Name)
		case cty.IndexStep:
			if s.Key.Type() == cty.String {
				out = out.Key(s.Key.AsString())
			} else {
				i, _ := s.Key.AsBigFloat().Int64()
				out = out.Index(int(i))
			}
		}
	}
	return string(out)
}

func ctyType(t pluginconfig.Type) cty.Type {
	switch t {
	case pluginconfig.String, pluginconfig.Duration:
		return cty.String
	case pluginconfig.Bool:
		return cty.Bool
	case pluginconfig.Int, pluginconfig.Float:
		return cty.Number
	default:
	}
	if e, ok := t.List(); ok {
		return cty.List(ctyType(e))
	}
	if e, ok := t.Map(); ok {
		return cty.Map(ctyType(e))
	}
	return cty.DynamicPseudoType
}

// references reads labels out of references to blocks.
func (r *reading) references(v cty.Value, a *hclsyntax.Attribute, f field, path pluginconfig.Path) (any, bool) {
	wrong := func() (any, bool) {
		r.unknown = append(r.unknown, path)
		r.fail(a.Expr.Range(), fmt.Sprintf("Wrong value for %q", f.Name), "Wanted %s: write references such as %s.", f.typeName(), example(f))
		return nil, false
	}
	v, _ = v.UnmarkDeep()
	if v.IsNull() {
		return nil, false
	}
	if !v.IsWhollyKnown() {
		r.unknown = append(r.unknown, path)
		return nil, false
	}
	if f.Type == pluginconfig.String {
		if label, ok := r.reference(v, f.ref); ok {
			return label, true
		}
		return wrong()
	}
	t := v.Type()
	_, isMap := f.Type.Map()
	if isMap != (t.IsObjectType() || t.IsMapType()) || !v.CanIterateElements() || t.Equals(eval.RefType) {
		return wrong()
	}
	byName, inOrder := map[string]any{}, []any{}
	for it := v.ElementIterator(); it.Next(); {
		key, e := it.Element()
		label, ok := r.reference(e, f.ref)
		if !ok {
			return wrong()
		}
		if isMap {
			byName[key.AsString()] = label
		}
		inOrder = append(inOrder, label)
	}
	if isMap {
		return byName, true
	}
	return inOrder, true
}

func (r *reading) reference(v cty.Value, kind string) (string, bool) {
	k, label, ok := eval.AsRef(v)
	return label, ok && k == kind
}

func example(f field) string {
	one := f.ref + ".name"
	switch f.Type {
	case pluginconfig.ListOf(pluginconfig.String):
		return "[" + one + "]"
	case pluginconfig.MapOf(pluginconfig.String):
		return "{ default = " + one + " }"
	default:
		return one
	}
}

// leaf walks the value of one attribute.
type leaf struct {
	r     *reading
	attr  *hclsyntax.Attribute
	field field
	want  cty.Type
}

// tree makes plain values of v. inside is the way from the attribute to v,
// secrets are those that what v is in is made of.
func (l *leaf) tree(v cty.Value, path pluginconfig.Path, inside []any, secrets []string) (any, bool) {
	v, marks := v.Unmark()
	for m := range marks {
		if s, ok := m.(eval.Mark); ok && !slices.Contains(secrets, s.Name) {
			secrets = append(slices.Clip(secrets), s.Name)
		}
	}
	container := v.IsKnown() && !v.IsNull() && v.CanIterateElements()
	if len(secrets) > 0 && !container {
		return l.secret(v, path, inside, secrets)
	}
	switch {
	case !v.IsKnown():
		l.r.unknown = append(l.r.unknown, path)
		return nil, false
	case v.IsNull():
		return nil, len(inside) > 0
	case v.Type().Equals(eval.RefType):
		l.r.fail(l.attr.Expr.Range(), "A reference cannot be used here", "%q takes a value. To use the label of a block write .label after the reference.", l.field.Name)
		return nil, false
	case container:
		return l.container(v, path, inside, secrets)
	case l.field.Secret:
		l.r.masks = append(l.r.masks, l.attr.Expr.Range())
		l.r.fail(l.attr.NameRange, "A secret is written in plain text",
			"The files of an experiment are stored with its runs. Put the value into a host variable and write %s = secret(\"NAME\").", l.attr.Name)
		return nil, false
	case v.Type() == cty.String:
		return v.AsString(), true
	case v.Type() == cty.Bool:
		return v.True(), true
	case v.Type() == cty.Number:
		return number(v.AsBigFloat()), true
	}
	l.r.fail(l.attr.Expr.Range(), "Value cannot be stored", "%s is no plain value.", v.Type().FriendlyName())
	return nil, false
}

func (l *leaf) container(v cty.Value, path pluginconfig.Path, inside []any, secrets []string) (any, bool) {
	t := v.Type()
	if t.IsObjectType() || t.IsMapType() {
		out := map[string]any{}
		for it := v.ElementIterator(); it.Next(); {
			key, e := it.Element()
			k := key.AsString()
			if x, ok := l.tree(e, path.Key(k), append(slices.Clip(inside), k), secrets); ok {
				out[k] = x
			}
		}
		return out, true
	}
	out := []any{}
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		i := len(out)
		x, _ := l.tree(e, path.Index(i), append(slices.Clip(inside), i), secrets)
		out = append(out, x)
	}
	return out, true
}

// secret makes a hole of a value that is a secret or made of one.
func (l *leaf) secret(v cty.Value, path pluginconfig.Path, inside []any, secrets []string) (any, bool) {
	names := strings.Join(secrets, ", ")
	if !l.field.secrets {
		l.r.unknown = append(l.r.unknown, path)
		l.r.fail(l.attr.Expr.Range(), "A secret cannot be used here", "%q would be stored and printed, and it depends on %s.", l.field.Name, names)
		return nil, false
	}
	if v.Type() != cty.String || v.IsKnown() && v.IsNull() || v.Type().IsSetType() {
		l.r.unknown = append(l.r.unknown, path)
		l.r.fail(l.attr.Expr.Range(), "A secret must be text", "%q is %s that depends on %s. Take the text out of it, or use tostring.", l.field.Name, v.Type().FriendlyName(), names)
		return nil, false
	}
	h := &hole{names: secrets, at: l.attr.Expr.Range()}
	h.label = fmt.Sprintf("${%s}", names)
	if s, err := l.value(l.r.ctx, l.r.scopes.label, inside); err == nil {
		h.label = s
	}
	real, attr := l.r.scopes.real, *l
	h.read = func() (string, error) {
		s, err := attr.value(context.Background(), real, inside)
		if err != nil {
			return "", fmt.Errorf("%s: %w", h.label, err)
		}
		return s, nil
	}
	l.r.holes[path] = h
	return h.label, true
}

// value evaluates the attribute again, in a scope in which secrets have values,
// and takes the text out of it. Its error says nothing about the value.
func (l *leaf) value(ctx context.Context, sc *eval.Scope, inside []any) (string, error) {
	v, diags := sc.Eval(ctx, l.attr.Expr)
	if missing := eval.Missing(diags); len(missing) > 0 {
		return "", fmt.Errorf("%w: %s", ErrSecretMissing, strings.Join(missing, ", "))
	}
	if diags.HasErrors() {
		return "", errSecretUse
	}
	v, err := convert.Convert(v, l.want)
	if err != nil {
		return "", errSecretUse
	}
	v, _ = v.UnmarkDeep()
	for _, step := range inside {
		if !v.IsKnown() || v.IsNull() {
			return "", errSecretUse
		}
		if v, err = stepInto(v, step); err != nil {
			return "", err
		}
	}
	if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return "", errSecretUse
	}
	return v.AsString(), nil
}

func stepInto(v cty.Value, step any) (cty.Value, error) {
	t := v.Type()
	switch s := step.(type) {
	case string:
		switch {
		case t.IsObjectType() && t.HasAttribute(s):
			return v.GetAttr(s), nil
		case t.IsMapType() && v.HasIndex(cty.StringVal(s)).True():
			return v.Index(cty.StringVal(s)), nil
		}
	case int:
		if k := cty.NumberIntVal(int64(s)); (t.IsListType() || t.IsTupleType()) && v.HasIndex(k).True() {
			return v.Index(k), nil
		}
	}
	return cty.NilVal, errSecretUse
}

// number writes a number as JSON: whole if it is whole, else with the fewest
// digits that give the same 64-bit value.
func number(f *big.Float) json.Number {
	if f.IsInt() {
		return json.Number(f.Text('f', 0))
	}
	x, _ := f.Float64()
	b, err := json.Marshal(x)
	if err != nil { // too large for a float64
		return json.Number(f.Text('g', 17))
	}
	return json.Number(b)
}
