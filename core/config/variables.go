package config

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-eval/berth/core/config/internal/eval"
)

// envPrefix and the name of a variable are the host variable that gives it.
const envPrefix = "BERTH_VAR_"

// variable is a declared variable.
type variable struct {
	block     *hclsyntax.Block
	typ       cty.Type
	defaults  *typeexpr.Defaults
	sensitive bool
	nullable  bool
}

// given is a value from outside, not yet of the variable's type.
type given struct {
	from string // for messages: "--var x", a file and line, or a host variable
	text string // to be read when the type is known; for --var and host variables
	val  cty.Value
	at   *hcl.Range
}

// variables works out the value of each variable.
func (l *loader) variables(blocks []*hclsyntax.Block) map[string]eval.Variable {
	declared := map[string]*variable{}
	var names []string
	for _, b := range blocks {
		declared[b.Labels[0]] = l.declare(b)
		names = append(names, b.Labels[0])
	}
	from := l.givenValues(declared, names)
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
	return out
}

// declare reads a variable block. Its attributes are plain: nothing else is
// known yet.
func (l *loader) declare(b *hclsyntax.Block) *variable {
	v := &variable{block: b, typ: cty.DynamicPseudoType, nullable: true}
	if a := b.Body.Attributes["type"]; a != nil {
		t, defaults, diags := l.typeOf(a.Expr)
		l.diags = append(l.diags, diags...)
		if !diags.HasErrors() {
			v.typ, v.defaults = t, defaults
		}
	}
	for name, into := range map[string]*bool{"sensitive": &v.sensitive, "nullable": &v.nullable} {
		if a := b.Body.Attributes[name]; a != nil {
			val, diags := plainValue(a.Expr, cty.Bool)
			l.diags = append(l.diags, diags...)
			if !diags.HasErrors() && !val.IsNull() {
				*into = val.True()
			}
		}
	}
	if a := b.Body.Attributes["description"]; a != nil {
		_, diags := plainValue(a.Expr, cty.String)
		l.diags = append(l.diags, diags...)
	}
	return v
}

// typeOf reads a type constraint. It is parsed again, because what was woven
// into the expression is none; so it may only hold what cannot grow.
func (l *loader) typeOf(e hclsyntax.Expression) (cty.Type, *typeexpr.Defaults, hcl.Diagnostics) {
	r := e.Range()
	fresh, diags := hclsyntax.ParseExpression(r.SliceBytes(l.src.files[r.Filename].Bytes), r.Filename, r.Start)
	if diags.HasErrors() {
		return cty.DynamicPseudoType, nil, diags
	}
	diags = hclsyntax.VisitAll(fresh, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ForExpr, *hclsyntax.BinaryOpExpr, *hclsyntax.SplatExpr, *hclsyntax.ConditionalExpr, *hclsyntax.TemplateJoinExpr:
			return hcl.Diagnostics{at(n.Range(), "Not a type", "Write a type such as string, list(number) or object({ a = string }).")}
		}
		return nil
	})
	if diags.HasErrors() {
		return cty.DynamicPseudoType, nil, diags
	}
	return typeexpr.TypeConstraintWithDefaults(fresh)
}

// fileValue is a value of a file of variables, HCL or JSON.
func fileValue(e hcl.Expression) (cty.Value, hcl.Diagnostics) {
	if native, ok := e.(hclsyntax.Expression); ok {
		return plainValue(native, cty.DynamicPseudoType)
	}
	return e.Value(nil)
}

// plainValue evaluates an expression that may not refer to anything.
func plainValue(e hclsyntax.Expression, want cty.Type) (cty.Value, hcl.Diagnostics) {
	for _, t := range e.Variables() {
		return cty.DynamicVal, hcl.Diagnostics{at(t.SourceRange(), "Nothing can be read here", "Variables are worked out before everything else. Write a plain value; use locals for values made of others.")}
	}
	v, diags := eval.Plain(e)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	v, err := convert.Convert(v, want)
	if err != nil {
		return cty.DynamicVal, hcl.Diagnostics{at(e.Range(), "Wrong value", "%s.", err)}
	}
	return v, nil
}

// givenValues are the values from outside; the last one that counts wins.
func (l *loader) givenValues(declared map[string]*variable, names []string) map[string]given {
	out := map[string]given{}
	for _, name := range names {
		if text, ok := l.lookupEnv(envPrefix + name); ok {
			out[name] = given{from: "the host variable " + envPrefix + name, text: text}
		}
	}
	for _, file := range l.opts.VarFiles {
		for _, a := range l.varFile(file) {
			if declared[a.Name] == nil {
				l.diags = append(l.diags, at(a.NameRange, "Unknown variable", "The experiment has no variable %q.%s", a.Name, eval.Suggest(a.Name, names)))
				continue
			}
			val, diags := fileValue(a.Expr)
			if diags.HasErrors() {
				l.diags = append(l.diags, at(a.Range, "Value cannot be read", "A file of variables holds plain values: %s = \"text\", a number, a list or a map. Nothing can be called or referred to.", a.Name))
				continue
			}
			out[a.Name] = given{from: file, val: val, at: a.Expr.Range().Ptr()}
		}
	}
	for _, s := range l.opts.Vars {
		name, text, ok := strings.Cut(s, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			l.diags = append(l.diags, problem("Variable without a value", "--var takes NAME=VALUE, got only %q.", name)...)
		case declared[name] == nil:
			l.diags = append(l.diags, problem("Unknown variable", "--var %s: the experiment has no such variable.%s", name, eval.Suggest(name, names))...)
		default:
			out[name] = given{from: "--var " + name, text: text}
		}
	}
	return out
}

// varFile reads the attributes of a file of variables. Its text is not kept for
// messages: it may hold secrets.
func (l *loader) varFile(path string) []*hcl.Attribute {
	src, err := readLimited(path)
	if err != nil {
		l.diags = append(l.diags, problem("File of variables cannot be read", "%s: %s.", path, plain(err))...)
		return nil
	}
	if d := tooDeep(path, src); d != nil {
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
	if body, ok := f.Body.(*hclsyntax.Body); ok {
		l.diags = append(l.diags, eval.Weave(body)...)
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
func (v *variable) value(name string, g given) (cty.Value, hcl.Diagnostics) {
	val := g.val
	where := v.block.DefRange()
	switch a := v.block.Body.Attributes["default"]; {
	case g.from != "":
		if g.at != nil {
			where = *g.at
		}
		if g.text != "" || g.val == cty.NilVal {
			var diags hcl.Diagnostics
			if val, diags = v.fromText(name, g); diags.HasErrors() {
				return val, diags
			}
		}
	case a == nil:
		return cty.DynamicVal, hcl.Diagnostics{at(where, "Variable without a value",
			"%q has no default. Give it with --var %s=VALUE, in a file with --var-file, or as %s%s.", name, name, envPrefix, name)}
	default:
		d, diags := plainValue(a.Expr, cty.DynamicPseudoType)
		if diags.HasErrors() {
			return d, diags
		}
		val, where = d, a.Expr.Range()
	}
	if v.defaults != nil && !val.IsNull() {
		val = v.defaults.Apply(val)
	}
	out, err := convert.Convert(val, v.typ)
	switch {
	case err != nil:
		return cty.DynamicVal, hcl.Diagnostics{at(where, "Wrong value for a variable", "%q, from %s, is a %s: %s.", name, g.source(), typeexpr.TypeString(v.typ), err)}
	case out.IsNull() && !v.nullable:
		return cty.DynamicVal, hcl.Diagnostics{at(where, "Wrong value for a variable", "%q must not be null.", name)}
	}
	return out, nil
}

func (g given) source() string {
	if g.from == "" {
		return "its default"
	}
	return g.from
}

// fromText reads a value of the command line or a host variable: as it is for a
// string, else as an HCL expression.
func (v *variable) fromText(name string, g given) (cty.Value, hcl.Diagnostics) {
	if v.typ == cty.String || v.typ == cty.DynamicPseudoType {
		return cty.StringVal(g.text), nil
	}
	wrong := func() (cty.Value, hcl.Diagnostics) {
		return cty.DynamicVal, hcl.Diagnostics{at(v.block.DefRange(), "Wrong value for a variable",
			"%q is a %s, and what %s says is none. Write it as in a file, such as [\"a\", \"b\"] or { key = 1 }.", name, typeexpr.TypeString(v.typ), g.from)}
	}
	src := []byte(g.text)
	if len(src) > maxSource || tooDeep(g.from, src) != nil {
		return wrong()
	}
	expr, diags := hclsyntax.ParseExpression(src, g.from, hcl.InitialPos)
	if diags.HasErrors() || len(expr.Variables()) > 0 {
		return wrong()
	}
	if d := eval.Weave(expr); d.HasErrors() {
		return wrong()
	}
	val, diags := eval.Plain(expr)
	if diags.HasErrors() {
		return wrong()
	}
	return val, nil
}

// validate asks the validation blocks of the variables.
func (l *loader) validate(ctx context.Context, blocks []*hclsyntax.Block) {
	for _, b := range blocks {
		for _, rule := range b.Body.Blocks {
			cond, message := rule.Body.Attributes["condition"], rule.Body.Attributes["error_message"]
			if rule.Type != "validation" {
				continue
			}
			if cond == nil || message == nil {
				l.diags = append(l.diags, at(rule.DefRange(), "Rule is not complete", "A validation has a condition and an error_message."))
				continue
			}
			l.diags = append(l.diags, l.rule(ctx, b.Labels[0], cond.Expr, message.Expr)...)
		}
	}
}

func (l *loader) rule(ctx context.Context, name string, cond, message hclsyntax.Expression) hcl.Diagnostics {
	const why = "A variable is checked before there are cells."
	secret := l.vars[name].Sensitive
	// The real value decides, also of a secret; so nothing of what went wrong
	// with a secret may be shown.
	ok, diags := l.env.Outside(eval.Real, why).Eval(ctx, cond)
	secret = secret || len(eval.Secrets(ok)) > 0
	if diags.HasErrors() {
		if secret {
			return hcl.Diagnostics{at(cond.Range(), "Rule cannot be worked out", "It failed with the value of %q, which is not shown because it is sensitive.", name)}
		}
		return diags
	}
	ok, _ = ok.UnmarkDeep()
	ok, err := convert.Convert(ok, cty.Bool)
	if err != nil || ok.IsNull() {
		return hcl.Diagnostics{at(cond.Range(), "Rule is neither true nor false", "A condition is true for good values and false for others.")}
	}
	if !ok.IsKnown() || ok.True() {
		return nil
	}
	text, diags := l.env.Outside(eval.Shape, why).Eval(ctx, message)
	if diags.HasErrors() {
		return diags
	}
	if len(eval.Secrets(text)) > 0 || !text.IsKnown() || text.IsNull() || text.Type() != cty.String {
		return hcl.Diagnostics{at(message.Range(), "Message cannot be shown", "An error_message is text without secrets.")}
	}
	return hcl.Diagnostics{at(cond.Range(), fmt.Sprintf("Variable %q is not valid", name), "%s", text.AsString())}
}
