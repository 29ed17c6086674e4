package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// Reading is one block as it is in one cell, and what was found on the way.
type Reading struct {
	ctx   context.Context //nolint:containedctx // a reading lives as long as one call of read
	scope *eval.Scope
	block *hclsyntax.Block
	Diags hcl.Diagnostics
	Masks []hcl.Range // secrets written into the file, not to be shown
	Holes map[pluginconfig.Path]*Hole
	// unknown are values that are wrong, or depend on something that is.
	unknown []pluginconfig.Path
	// Unexplained are expressions that are unknown although nothing is wrong
	// with them; something that they depend on must be.
	Unexplained []hcl.Range
	// Broken readings are not whole: something is wrong or unknown.
	Broken bool
	Bodies map[string]*hclsyntax.Block // that a plugin describes, by name
}

// Read evaluates the fields of a block and returns them as JSON that fits them.
// What is wrong or unknown is not in it, and then the reading is broken.
func Read(ctx context.Context, sc *eval.Scope, b *hclsyntax.Block, fs []Field) (*Reading, json.RawMessage) {
	r := &Reading{ctx: ctx, scope: sc, block: b, Holes: map[pluginconfig.Path]*Hole{}, Bodies: map[string]*hclsyntax.Block{}}
	tree := r.body(b.Body, fs, "") //nolint:contextcheck // a secret is read when an attempt needs it, after Load
	raw, err := json.Marshal(tree)
	if err != nil { // numbers are checked before, everything else always marshals
		r.Fail(b.DefRange(), "Value cannot be stored", "%s.", err)
		r.Broken = true
		return r, nil
	}
	ps := SchemaOf(fs).Problems(raw)
	r.Report(ps)
	if !r.Broken && len(r.unknown) == 0 && !r.Diags.HasErrors() {
		return r, raw
	}
	r.Broken = true
	for _, p := range ps {
		r.unknown = append(r.unknown, p.Path)
	}
	for _, f := range SchemaOf(fs).Fields {
		if r.IsUnknown(pluginconfig.Path(f.Name)) {
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

// IsUnknown says whether something at or below the field that path begins with
// is wrong or unknown.
func (r *Reading) IsUnknown(path pluginconfig.Path) bool {
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

// Report places problems with the values in the file, without those that
// follow from others.
func (r *Reading) Report(ps []pluginconfig.Problem) {
	for _, p := range ps {
		if !r.IsUnknown(p.Path) || p.Path == "" {
			r.Diags = append(r.Diags, Locate(r.block, p))
		}
	}
}

// Fail reports an error.
func (r *Reading) Fail(at hcl.Range, summary, format string, a ...any) {
	r.Diags = append(r.Diags, At(at, summary, format, a...))
}

// Into decodes what was read; what does not fit is reported.
func (r *Reading) Into(raw json.RawMessage, into any) bool {
	err := pluginconfig.Decode(raw, into)
	if err == nil {
		return true
	}
	if ps, ok := errors.AsType[pluginconfig.Problems](err); ok {
		r.Report(ps)
		return false
	}
	r.Fail(r.block.DefRange(), "Block cannot be read", "%s.", err)
	return false
}

func (r *Reading) body(b *hclsyntax.Body, fs []Field, path pluginconfig.Path) map[string]any {
	tree := map[string]any{}
	for _, f := range fs {
		if a := b.Attributes[f.Name]; a != nil && f.IsAttribute() {
			if v, ok := r.attribute(a, f, path.Attr(f.Name)); ok {
				tree[f.Name] = v
			}
		}
		if f.IsBlock() && !f.Many {
			r.blocks(b, f, path.Attr(f.Name), tree)
		}
	}
	return tree
}

// blocks reads the blocks of one field into tree.
func (r *Reading) blocks(b *hclsyntax.Body, f Field, path pluginconfig.Path, tree map[string]any) {
	var items []any
	byLabel := map[string]any{}
	for _, inner := range b.Blocks {
		if inner.Type != f.Name {
			continue
		}
		switch {
		case f.Body == BodyAxes: // read by others
		case f.Body == BodyConfig:
			r.Bodies[f.Name] = inner
		case f.Body == BodyFree:
			tree[f.Name] = r.freeBody(inner.Body, path)
		case f.Type == pluginconfig.Block:
			if tree[f.Name] == nil {
				tree[f.Name] = r.body(inner.Body, f.Nested, path)
			}
		case f.Type == pluginconfig.BlockList:
			items = append(items, r.body(inner.Body, f.Nested, path.Index(len(items))))
		case f.Type == pluginconfig.BlockMap && len(inner.Labels) == 1:
			label := inner.Labels[0]
			if byLabel[label] != nil {
				r.Fail(inner.DefRange(), fmt.Sprintf("%s %q is defined twice", f.Name, label), "Rename or remove one of them.")
			}
			byLabel[label] = r.body(inner.Body, f.Nested, path.Key(label))
		}
	}
	if items != nil {
		tree[f.Name] = items
	}
	if len(byLabel) > 0 {
		tree[f.Name] = byLabel
	}
}

func (r *Reading) freeBody(b *hclsyntax.Body, path pluginconfig.Path) map[string]any {
	tree := map[string]any{}
	for _, a := range InOrder(b.Attributes) {
		f := Field{Field: pluginconfig.Field{Name: a.Name, Type: pluginconfig.Any}}
		if v, ok := r.attribute(a, f, path.Attr(a.Name)); ok {
			tree[a.Name] = v
		}
	}
	return tree
}

// attribute is the value of one attribute. Not ok: absent, unknown or wrong.
func (r *Reading) attribute(a *hclsyntax.Attribute, f Field, path pluginconfig.Path) (any, bool) {
	v, diags := r.scope.Eval(r.ctx, a.Expr)
	r.Diags = append(r.Diags, diags...)
	if diags.HasErrors() {
		r.unknown = append(r.unknown, path)
		return nil, false
	}
	if f.Ref != "" {
		return r.references(v, a, f, path)
	}
	want := ctyType(f.Type)
	if converted, err := convert.Convert(v, want); err == nil {
		v = converted
	} else if word := words[f.Type]; word != "" {
		r.unknown = append(r.unknown, path)
		r.Fail(a.Expr.Range(), fmt.Sprintf("Wrong value for %q", f.Name), "%s must be %s.", f.Name, word)
		return nil, false
	}
	l := leaf{r: r, attr: a, field: f, want: want}
	return l.tree(v, path, nil, nil)
}

// words are the types that one value can have. What is wrong with an element of
// a list or a map is found when the block is compared with its schema.
var words = map[pluginconfig.Type]string{
	pluginconfig.String: "a string", pluginconfig.Duration: `a duration such as "90s" or "1h30m"`,
	pluginconfig.Bool: "true or false", pluginconfig.Int: "a whole number", pluginconfig.Float: "a number",
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
func (r *Reading) references(v cty.Value, a *hclsyntax.Attribute, f Field, path pluginconfig.Path) (any, bool) {
	wrong := func() (any, bool) {
		r.unknown = append(r.unknown, path)
		r.Fail(a.Expr.Range(), fmt.Sprintf("Wrong value for %q", f.Name), "%s must be %s.", f.Name, reference(f))
		return nil, false
	}
	v, _ = v.UnmarkDeep()
	if v.IsNull() {
		return nil, false
	}
	if !v.IsWhollyKnown() {
		r.unknown = append(r.unknown, path)
		r.Unexplained = append(r.Unexplained, a.Expr.Range())
		return nil, false
	}
	if f.Type == pluginconfig.String {
		if label, ok := r.reference(v, f.Ref); ok {
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
		label, ok := r.reference(e, f.Ref)
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

func (r *Reading) reference(v cty.Value, kind string) (string, bool) {
	k, label, ok := eval.AsRef(v)
	return label, ok && k == kind
}

// reference describes what a field with references must be.
func reference(f Field) string {
	one := f.Ref + ".name"
	switch f.Type {
	case pluginconfig.ListOf(pluginconfig.String):
		return "a list of references such as [" + one + "]"
	case pluginconfig.MapOf(pluginconfig.String):
		return "a map of references such as { default = " + one + " }"
	default:
		return "a reference such as " + one
	}
}
