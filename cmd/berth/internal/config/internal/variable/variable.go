// Package variable evaluates the variables of an experiment, from values given
// outside and from defaults, and checks them with their validation rules.
package variable

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/plugins/suggest"
)

// envPrefix and the name of a variable are the host variable that gives it.
const envPrefix = "BERTH_VAR_"

// variable is a declared variable.
type variable struct {
	block     *hclsyntax.Block
	typ       cty.Type
	defaults  *typeexpr.Defaults
	loader    *loader
	sensitive bool
}

// value is a value from outside, not yet of the variable's type.
type value struct {
	from string // for messages: "--var x", a file and line, or a host variable
	text string // to be read when the type is known; for --var and host variables
	val  cty.Value
	at   *hcl.Range
}

// Given is where values come from.
type Given struct {
	Vars      []string                   // NAME=VALUE, in order; the last of a name wins
	Files     []string                   // of attributes; Vars win over Files, these over Values and host variables
	Values    map[string]json.RawMessage // by name
	LookupEnv func(string) (string, bool)
}

// loader evaluates all variables.
type loader struct {
	src   *source.Source
	given Given
	ctx   context.Context //nolint:containedctx // a loader lives as long as one call of Values
	plain *eval.Scope
	diags hcl.Diagnostics
	masks []hcl.Range
}

// Values evaluates each variable block. The ranges are places in
// the files that must not be shown.
func Values(ctx context.Context, src *source.Source, blocks []*hclsyntax.Block, g Given) (map[string]eval.Variable, []hcl.Range, hcl.Diagnostics) {
	l := &loader{src: src, given: g, ctx: ctx, plain: eval.Plain()}
	declared := map[string]*variable{}
	var names []string
	for _, b := range blocks {
		declared[b.Labels[0]] = l.declare(b)
		names = append(names, b.Labels[0])
	}
	from := l.values(declared, names)
	out := map[string]eval.Variable{}
	for _, name := range names {
		v := declared[name]
		val, diags := v.value(name, from[name])
		l.diags = append(l.diags, diags...)
		if diags.HasErrors() {
			val = cty.DynamicVal
		}
		out[name] = eval.Variable{Value: val, Sensitive: v.sensitive}
	}
	return out, l.masks, l.diags
}

// declare reads a variable block. Its attributes are plain: nothing else is
// known yet.
func (l *loader) declare(b *hclsyntax.Block) *variable {
	v := &variable{loader: l, block: b, typ: cty.DynamicPseudoType}
	if a := b.Body.Attributes["type"]; a != nil {
		t, defaults, diags := typeOf(a.Expr)
		l.diags = append(l.diags, diags...)
		if !diags.HasErrors() {
			v.typ, v.defaults = t, defaults
		}
	}
	if a := b.Body.Attributes["sensitive"]; a != nil {
		val, diags := l.plainValue(a.Expr, cty.Bool)
		l.diags = append(l.diags, diags...)
		v.sensitive = !diags.HasErrors() && !val.IsNull() && val.True()
	}
	if a := b.Body.Attributes["default"]; a != nil && v.sensitive {
		if val, diags := l.plainValue(a.Expr, cty.DynamicPseudoType); diags.HasErrors() || !val.IsNull() {
			l.masks = append(l.masks, a.Expr.Range())
			l.diags = append(l.diags, source.At(a.NameRange, "A secret is written in plain text",
				"The files of an experiment are stored with its runs. Give the value of %q with --var, in a file with --var-file, or as %s%s.", b.Labels[0], envPrefix, b.Labels[0]))
		}
	}
	if a := b.Body.Attributes["description"]; a != nil {
		_, diags := l.plainValue(a.Expr, cty.String)
		l.diags = append(l.diags, diags...)
	}
	return v
}

// typeOf reads a type constraint. It may only hold what cannot grow.
func typeOf(e hclsyntax.Expression) (cty.Type, *typeexpr.Defaults, hcl.Diagnostics) {
	diags := hclsyntax.VisitAll(e, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ForExpr, *hclsyntax.BinaryOpExpr, *hclsyntax.SplatExpr, *hclsyntax.ConditionalExpr, *hclsyntax.TemplateJoinExpr:
			return hcl.Diagnostics{source.At(n.Range(), "Not a type", "Write a type such as string, list(number) or object({ a = string }).")}
		}
		return nil
	})
	if diags.HasErrors() {
		return cty.DynamicPseudoType, nil, diags
	}
	return typeexpr.TypeConstraintWithDefaults(e)
}

// fileValue is a value of a file of variables, HCL or JSON.
func (l *loader) fileValue(e hcl.Expression) (cty.Value, hcl.Diagnostics) {
	if native, ok := e.(hclsyntax.Expression); ok {
		return l.plainValue(native, cty.DynamicPseudoType)
	}
	return e.Value(nil)
}

// plainValue evaluates an expression that may not refer to anything.
func (l *loader) plainValue(e hclsyntax.Expression, want cty.Type) (cty.Value, hcl.Diagnostics) {
	for _, t := range e.Variables() {
		return cty.DynamicVal, hcl.Diagnostics{source.At(t.SourceRange(), "References are not allowed here", "Variables are evaluated before everything else. Write a plain value; use locals for values made of others.")}
	}
	v, diags := l.plain.Eval(l.ctx, e)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	v, err := convert.Convert(v, want)
	if err != nil {
		return cty.DynamicVal, hcl.Diagnostics{source.At(e.Range(), "Wrong value", "%s.", err)}
	}
	return v, nil
}

// values are the values from outside; the last one that counts wins.
func (l *loader) values(declared map[string]*variable, names []string) map[string]value {
	out := map[string]value{}
	for _, name := range names {
		if text, ok := l.given.LookupEnv(envPrefix + name); ok {
			out[name] = value{from: "the environment variable " + envPrefix + name, text: text}
		}
		var kept ctyjson.SimpleJSONValue
		if raw := l.given.Values[name]; raw != nil && kept.UnmarshalJSON(raw) == nil {
			out[name] = value{from: "the run", val: kept.Value}
		}
	}
	for _, file := range l.given.Files {
		for _, a := range l.varFile(file) {
			if declared[a.Name] == nil {
				l.diags = append(l.diags, source.At(a.NameRange, "Unknown variable", "The experiment has no variable %q.%s", a.Name, suggest.Hint(a.Name, names)))
				continue
			}
			val, diags := l.fileValue(a.Expr)
			if diags.HasErrors() {
				l.diags = append(l.diags, source.At(a.Range, "Value cannot be read", "A file of variables has plain values: %s = \"text\", a number, a list or a map. Nothing can be called or referred to.", a.Name))
				continue
			}
			out[a.Name] = value{from: file, val: val, at: a.Expr.Range().Ptr()}
		}
	}
	for _, s := range l.given.Vars {
		name, text, ok := strings.Cut(s, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			l.diags = append(l.diags, source.Problem("Variable without a value", "--var must be NAME=VALUE, got %q.", name)...)
		case name == "":
			l.diags = append(l.diags, source.Problem("Variable without a name", "--var must be NAME=VALUE, got only a value.")...)
		case declared[name] == nil:
			l.diags = append(l.diags, source.Problem("Unknown variable", "--var %s: the experiment has no such variable.%s", name, suggest.Hint(name, names))...)
		default:
			out[name] = value{from: "--var " + name, text: text}
		}
	}
	return out
}

// varFile reads the attributes of a file of variables. Its text is not kept for
// messages: it may hold secrets.
func (l *loader) varFile(path string) []*hcl.Attribute {
	src, err := source.ReadLimited(path)
	if err != nil {
		l.diags = append(l.diags, source.Problem("Variable file cannot be read", "%s: %s.", path, source.Plain(err))...)
		return nil
	}
	src = bytes.TrimPrefix(src, []byte(source.Mark))
	if d := source.Unparsable(path, src); d != nil {
		l.diags = append(l.diags, d)
		return nil
	}
	var f *hcl.File
	var diags hcl.Diagnostics
	if strings.HasSuffix(path, ".json") {
		f, diags = hcljson.Parse(src, path)
	} else {
		f, diags = hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	}
	l.diags = append(l.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	attrs, diags := f.Body.JustAttributes()
	l.diags = append(l.diags, diags...)
	out := make([]*hcl.Attribute, 0, len(attrs))
	for _, a := range attrs {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *hcl.Attribute) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// value is the value of a variable: what was given, else the default.
func (v *variable) value(name string, g value) (cty.Value, hcl.Diagnostics) {
	val := g.val
	where := v.block.DefRange()
	switch a := v.block.Body.Attributes["default"]; {
	case g.from != "":
		if g.at != nil {
			where = *g.at
		}
		if g.text != "" || g.val == cty.NilVal {
			var diags hcl.Diagnostics
			if val, diags = v.fromText(g); diags.HasErrors() {
				return val, diags
			}
		}
	case a == nil:
		return cty.DynamicVal, hcl.Diagnostics{source.At(where, "Variable without a value",
			"%q has no default. Give it with --var %s=VALUE, in a file with --var-file, or as %s%s.", name, name, envPrefix, name)}
	default:
		d, diags := v.loader.plainValue(a.Expr, cty.DynamicPseudoType)
		if diags.HasErrors() {
			return d, diags
		}
		val, where = d, a.Expr.Range()
	}
	if v.defaults != nil && !val.IsNull() {
		val = v.defaults.Apply(val)
	}
	out, err := convert.Convert(val, v.typ)
	if err != nil {
		return cty.DynamicVal, hcl.Diagnostics{source.At(where, "Wrong value for a variable", "%q, from %s, is a %s: %s.", name, g.source(), typeexpr.TypeString(v.typ), err)}
	}
	return out, nil
}

func (g value) source() string {
	if g.from == "" {
		return "its default"
	}
	return g.from
}

// fromText reads a value of the command line or a host variable: as it is for a
// string or without a type, else as an HCL expression.
func (v *variable) fromText(g value) (cty.Value, hcl.Diagnostics) {
	if v.typ == cty.String || v.block.Body.Attributes["type"] == nil {
		return cty.StringVal(g.text), nil
	}
	wrong := func() (cty.Value, hcl.Diagnostics) {
		return cty.DynamicVal, hcl.Diagnostics{source.At(v.block.DefRange(), "Wrong value for a variable",
			"The value from %s is not an HCL expression of type %s. Write it as in a file, such as \"text\", [\"a\", \"b\"] or { key = 1 }.", g.from, typeexpr.TypeString(v.typ))}
	}
	src := []byte(g.text)
	if len(src) > source.MaxFile || source.Unparsable(g.from, src) != nil {
		return wrong()
	}
	expr, diags := hclsyntax.ParseExpression(src, g.from, hcl.InitialPos)
	if diags.HasErrors() || len(expr.Variables()) > 0 {
		return wrong()
	}
	val, diags := v.loader.plain.Eval(v.loader.ctx, expr)
	if diags.HasErrors() {
		return wrong()
	}
	return val, nil
}

// Validate evaluates the validation blocks of the variables.
func Validate(ctx context.Context, env *eval.Env, vars map[string]eval.Variable, blocks []*hclsyntax.Block) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, b := range blocks {
		for _, rule := range b.Body.Blocks {
			cond, message := rule.Body.Attributes["condition"], rule.Body.Attributes["error_message"]
			switch {
			case rule.Type != "validation":
			case cond == nil || message == nil:
				diags = append(diags, source.At(rule.DefRange(), "Incomplete validation", "Write a condition and an error_message."))
			default:
				name := b.Labels[0]
				diags = append(diags, check(ctx, env, name, vars[name].Sensitive, [2]hclsyntax.Expression{cond.Expr, message.Expr})...)
			}
		}
	}
	return diags
}

// check evaluates one rule: its condition, and its message when that is false.
func check(ctx context.Context, env *eval.Env, name string, secret bool, rule [2]hclsyntax.Expression) hcl.Diagnostics {
	cond, message := rule[0], rule[1]
	const why = "A variable is checked before there are cells."
	// The real value decides, also of a secret; so nothing of what went wrong
	// with a secret may be shown.
	ok, diags := env.Outside(why).Real().Eval(ctx, cond)
	secret = secret || len(eval.SecretsOf(ok)) > 0
	if diags.HasErrors() {
		if secret {
			return hcl.Diagnostics{source.At(cond.Range(), "Condition cannot be evaluated", "It failed with the value of %q, which is not shown because it is sensitive.", name)}
		}
		return diags
	}
	ok, _ = ok.UnmarkDeep()
	ok, err := convert.Convert(ok, cty.Bool)
	if err != nil || ok.IsNull() {
		return hcl.Diagnostics{source.At(cond.Range(), "Condition is not true or false", "A condition is true for valid values and false for others.")}
	}
	if !ok.IsKnown() || ok.True() {
		return nil
	}
	text, diags := env.Outside(why).Eval(ctx, message)
	if diags.HasErrors() {
		return diags
	}
	if len(eval.SecretsOf(text)) > 0 || !text.IsKnown() || text.IsNull() || text.Type() != cty.String {
		return hcl.Diagnostics{source.At(message.Range(), "Wrong error_message", "Write text that does not depend on a secret.")}
	}
	return hcl.Diagnostics{source.At(cond.Range(), fmt.Sprintf("Variable %q is not valid", name), "%s", text.AsString())}
}
