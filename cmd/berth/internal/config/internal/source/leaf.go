package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
	"github.com/berth-eval/berth/core/cell"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// errSecretUse says no more than that, because the cause may quote a secret.
var errSecretUse = errors.New("the expression cannot be evaluated with the value of the secret")

// Hole is a value in the experiment that is a secret, or made of one.
type Hole struct {
	cell.Secret

	At hcl.Range
}

// leaf walks the value of one attribute.
type leaf struct {
	r     *Reading
	attr  *hclsyntax.Attribute
	field Field
	want  cty.Type
}

// tree makes plain values of v. inside is the path from the attribute to v;
// secrets are those of the values that v is in.
func (l *leaf) tree(v cty.Value, path pluginconfig.Path, inside []pluginconfig.Step, secrets []string) (any, bool) {
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
		l.r.Unexplained = append(l.r.Unexplained, l.attr.Expr.Range())
		return nil, false
	case v.IsNull():
		return nil, len(inside) > 0
	case v.Type().Equals(eval.RefType):
		l.r.Fail(l.attr.Expr.Range(), "A reference cannot be used here", "%q takes a value. To use the label of a block write .label after the reference.", l.field.Name)
		return nil, false
	case container:
		return l.container(v, path, inside, secrets)
	case l.field.Secret:
		l.r.Masks = append(l.r.Masks, l.attr.Expr.Range())
		l.r.unknown = append(l.r.unknown, path)
		form := `secret("NAME")`
		if l.want.IsListType() {
			form = "[" + form + "]"
		}
		l.r.Fail(l.attr.NameRange, "A secret is written in plain text",
			"The files of an experiment are stored with its runs. Put the value into an environment variable and write %s = %s.", l.attr.Name, form)
		return nil, false
	case v.Type() == cty.String:
		return v.AsString(), true
	case v.Type() == cty.Bool:
		return v.True(), true
	case v.Type() == cty.Number:
		return number(v.AsBigFloat()), true
	}
	l.r.Fail(l.attr.Expr.Range(), "Value cannot be stored", "%s is not a plain value.", v.Type().FriendlyName())
	return nil, false
}

func (l *leaf) container(v cty.Value, path pluginconfig.Path, inside []pluginconfig.Step, secrets []string) (any, bool) {
	t := v.Type()
	if t.IsObjectType() || t.IsMapType() {
		out := map[string]any{}
		for it := v.ElementIterator(); it.Next(); {
			key, e := it.Element()
			k := key.AsString()
			if x, ok := l.tree(e, path.Key(k), append(slices.Clip(inside), pluginconfig.Step{Kind: pluginconfig.StepKey, Name: k}), secrets); ok {
				out[k] = x
			}
		}
		return out, true
	}
	out := []any{}
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		i := len(out)
		x, _ := l.tree(e, path.Index(i), append(slices.Clip(inside), pluginconfig.Step{Kind: pluginconfig.StepIndex, Index: i}), secrets)
		out = append(out, x)
	}
	return out, true
}

// secret notes a value that is a secret or made of one, to be read later.
func (l *leaf) secret(v cty.Value, path pluginconfig.Path, inside []pluginconfig.Step, secrets []string) (any, bool) {
	names := strings.Join(secrets, ", ")
	if !l.field.Secrets {
		l.r.unknown = append(l.r.unknown, path)
		l.r.Fail(l.attr.Expr.Range(), "A secret cannot be used here", "%q would be stored and printed, and it depends on %s.", l.field.Name, names)
		return nil, false
	}
	if v.Type() != cty.String || v.IsKnown() && v.IsNull() || v.Type().IsSetType() {
		l.r.unknown = append(l.r.unknown, path)
		l.r.Fail(l.attr.Expr.Range(), "A secret must be text", "%q is %s that depends on %s. Take the text out of it, or use tostring.", l.field.Name, v.Type().FriendlyName(), names)
		return nil, false
	}
	h := &Hole{At: locateExpr(l.attr.Expr, inside)}
	h.Label = fmt.Sprintf("${%s}", names)
	if s, err := l.value(l.r.scope.With(eval.Labels), inside); err == nil {
		h.Label = s
	}
	scope, attr := l.r.scope, *l
	h.Read = func() (string, error) {
		s, err := attr.value(scope.Real(), inside)
		if missing := scope.Missing(secrets); err != nil && len(missing) > 0 {
			err = fmt.Errorf("%w: %s", cell.ErrSecretMissing, strings.Join(missing, ", "))
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", h.Label, err)
		}
		return s, nil
	}
	l.r.Holes[path] = h
	return h.Label, true
}

// value evaluates the attribute again, in a scope that has values for secrets,
// and takes the text out of it. Its error says nothing about the value.
func (l *leaf) value(sc *eval.Scope, inside []pluginconfig.Step) (string, error) {
	v, diags := sc.Eval(context.Background(), l.attr.Expr)
	v, err := convert.Convert(v, l.want)
	if err != nil || diags.HasErrors() {
		return "", errSecretUse
	}
	v, _ = v.UnmarkDeep()
	for _, step := range inside {
		if v = stepInto(v, step); v == cty.NilVal {
			return "", errSecretUse
		}
	}
	if v, err = convert.Convert(v, cty.String); err != nil || !v.IsKnown() || v.IsNull() {
		return "", errSecretUse
	}
	return v.AsString(), nil
}

// stepInto is an element of a value; [cty.NilVal] when there is none.
func stepInto(v cty.Value, step pluginconfig.Step) cty.Value {
	if !v.IsKnown() || v.IsNull() {
		return cty.NilVal
	}
	t, key := v.Type(), cty.StringVal(step.Name)
	if step.Kind == pluginconfig.StepIndex {
		key = cty.NumberIntVal(int64(step.Index))
	}
	switch {
	case t.IsObjectType() && t.HasAttribute(step.Name):
		return v.GetAttr(step.Name)
	case (t.IsMapType() || t.IsListType() || t.IsTupleType()) && v.HasIndex(key).True():
		return v.Index(key)
	}
	return cty.NilVal
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
