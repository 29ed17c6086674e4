package eval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-eval/berth/plugins/suggest"
)

// RefType is the type of a reference to a block, such as agent.solver.
var RefType = cty.Object(map[string]cty.Type{"kind": cty.String, "label": cty.String})

// Ref is a reference to a block.
func Ref(kind, label string) cty.Value {
	return cty.ObjectVal(map[string]cty.Value{"kind": cty.StringVal(kind), "label": cty.StringVal(label)})
}

// AsRef takes a known reference apart.
func AsRef(v cty.Value) (kind, label string, ok bool) {
	v, _ = v.UnmarkDeep()
	if !v.IsWhollyKnown() || v.IsNull() || !v.Type().Equals(RefType) {
		return "", "", false
	}
	k, l := v.GetAttr("kind"), v.GetAttr("label")
	if k.IsNull() || l.IsNull() {
		return "", "", false
	}
	return k.AsString(), l.AsString(), true
}

// Variable is the value that was given to a variable.
type Variable struct {
	Value     cty.Value
	Sensitive bool
}

// Names is what the expressions of an experiment can refer to.
type Names struct {
	Refs      map[string][]string // labels by kind of block; each kind that exists has an entry
	Variables map[string]Variable
	Locals    map[string]hclsyntax.Expression
	Axes      []string // of the matrix, so that a typo is found before a cell is known
}

// Env is what all expressions of one experiment share.
type Env struct {
	Names

	reader    *Reader
	lookupEnv func(string) (string, bool)

	mu   sync.Mutex       // one evaluation at a time: functions share the reader
	base *hcl.EvalContext // references and functions
}

// NewEnv makes an Env. lookup may be nil.
func NewEnv(r *Reader, lookup func(string) (string, bool), names Names) *Env {
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	e := &Env{Names: names, reader: r, lookupEnv: lookup}
	e.base = &hcl.EvalContext{Variables: map[string]cty.Value{}, Functions: e.functions()}
	for kind, labels := range e.Refs {
		refs := map[string]cty.Value{}
		for _, l := range labels {
			refs[l] = Ref(kind, l)
		}
		e.base.Variables[kind] = cty.ObjectVal(refs)
	}
	return e
}

// Files are the files that functions have read.
func (e *Env) Files() map[string][]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reader.Files()
}

// Place is where the file is that ReadFile reads for a path.
func (e *Env) Place(path string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reader.Place(path)
}

// Scope evaluates expressions for one cell.
type Scope struct {
	env *Env
	// secrets are what secrets are; nil: unknown, so that nothing can depend on
	// their values by accident.
	secrets Secrets
	// matrix is the value of each axis; nil where there is no cell, and then
	// noMatrix says why.
	matrix   map[string]cty.Value
	noMatrix string
	memo     map[string]cty.Value // of locals; one that failed is unknown
	busy     []string             // locals being evaluated
	vars     cty.Value            // once they are needed
}

// Scope is a scope of a cell, in which secrets are unknown; matrix has a value
// for each axis.
func (e *Env) Scope(matrix map[string]cty.Value) *Scope {
	if matrix == nil {
		matrix = map[string]cty.Value{}
	}
	return &Scope{env: e, matrix: matrix, memo: map[string]cty.Value{}}
}

// Outside is a scope in which the matrix cannot be read; why completes the
// sentence "matrix cannot be read here: …".
func (e *Env) Outside(why string) *Scope {
	return &Scope{env: e, noMatrix: why, memo: map[string]cty.Value{}}
}

// With is the same scope with values for secrets.
func (s *Scope) With(secrets Secrets) *Scope {
	return &Scope{env: s.env, secrets: secrets, matrix: s.matrix, noMatrix: s.noMatrix, memo: map[string]cty.Value{}}
}

// Real is the same scope with the real values of secrets; see [Env.Real].
func (s *Scope) Real() *Scope { return s.With(s.env.Real) }

// Missing are those of the secrets that are not set.
func (s *Scope) Missing(secrets []string) (missing []string) {
	for _, name := range secrets {
		if s.env.Real(name) == cty.NilVal {
			missing = append(missing, name)
		}
	}
	return missing
}

// Eval is the value of an expression. Diagnostics with errors come with an
// unknown value. Safe for concurrent use.
func (s *Scope) Eval(ctx context.Context, expr hclsyntax.Expression) (cty.Value, hcl.Diagnostics) {
	return s.run(ctx, expr, func() (cty.Value, hcl.Diagnostics) { return s.eval(expr) })
}

// run does the work of an evaluation, unless ctx has ended.
func (s *Scope) run(ctx context.Context, expr hclsyntax.Expression, work func() (cty.Value, hcl.Diagnostics)) (cty.Value, hcl.Diagnostics) {
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return cty.DynamicVal, hcl.Diagnostics{tooLarge(expr.Range(), err)}
	}
	return work()
}

func (s *Scope) eval(expr hclsyntax.Expression) (v cty.Value, diags hcl.Diagnostics) {
	defer func() {
		// cty panics on misuse; an experiment must not be able to end the program.
		if p := recover(); p != nil {
			v, diags = cty.DynamicVal, hcl.Diagnostics{{
				Severity: hcl.DiagError, Summary: "Expression cannot be evaluated",
				Detail: fmt.Sprintf("The evaluation failed with %.200q. Please report this with the expression.", fmt.Sprint(p)), Subject: expr.Range().Ptr(),
			}}
		}
	}()
	traversals := expr.Variables()
	for _, t := range traversals {
		diags = append(diags, s.check(t)...)
	}
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	ctx, diags := s.context(traversals)
	v, more := expr.Value(ctx)
	diags = append(diags, explain(more)...)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if _, err := weigh(v, MaxValue); err != nil {
		return cty.DynamicVal, append(diags, tooLarge(expr.Range(), err))
	}
	return v, diags
}

// context has the values that an expression refers to, and no other locals.
func (s *Scope) context(traversals []hcl.Traversal) (*hcl.EvalContext, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	if s.vars == cty.NilVal {
		s.vars = s.variables()
	}
	locals := map[string]cty.Value{}
	for _, t := range traversals {
		if t.RootName() != "local" {
			continue
		}
		names := slices.Sorted(maps.Keys(s.env.Locals))
		if name, _, ok := second(t); ok {
			names = []string{name}
		}
		for _, name := range names {
			v, more := s.local(name, t.SourceRange())
			locals[name], diags = v, append(diags, more...)
		}
	}
	ctx := s.env.base.NewChild()
	ctx.Variables = map[string]cty.Value{"var": s.vars, "matrix": cty.ObjectVal(s.matrix), "local": cty.ObjectVal(locals)}
	if s.secrets != nil {
		ctx.Functions = map[string]function.Function{"secret": limited(s.secrets.function())}
	}
	return ctx, diags
}

func (s *Scope) variables() cty.Value {
	vals := map[string]cty.Value{}
	for name, v := range s.env.Variables {
		vals[name] = v.Value
		if v.Sensitive {
			vals[name] = s.secrets.value(varPrefix+name, v.Value.Type())
		}
	}
	return cty.ObjectVal(vals)
}

// local is the value of a local, worked out when it is first needed.
func (s *Scope) local(name string, from hcl.Range) (cty.Value, hcl.Diagnostics) {
	if v, ok := s.memo[name]; ok {
		return v, nil // what is wrong with it has been reported, and is not repeated: there may be many ways to it
	}
	if i := slices.Index(s.busy, name); i >= 0 {
		path := strings.Join(append(slices.Clone(s.busy[i:]), name), " → ")
		return cty.DynamicVal, hcl.Diagnostics{{
			Severity: hcl.DiagError, Summary: "Locals depend on each other", Detail: "They form a cycle: " + path + ".", Subject: &from,
		}}
	}
	s.busy = append(s.busy, name)
	v, diags := s.eval(s.env.Locals[name])
	s.busy = s.busy[:len(s.busy)-1]
	s.memo[name] = v
	return v, diags
}

// check finds names that do not exist, which HCL reports without a suggestion.
func (s *Scope) check(t hcl.Traversal) hcl.Diagnostics {
	root := t.RootName()
	var known []string
	what := ""
	switch root {
	case "var":
		what, known = "variable", slices.Sorted(maps.Keys(s.env.Variables))
	case "local":
		what, known = "local", slices.Sorted(maps.Keys(s.env.Locals))
	case "matrix":
		if s.noMatrix != "" {
			return hcl.Diagnostics{{
				Severity: hcl.DiagError, Summary: "The matrix cannot be read here", Detail: s.noMatrix, Subject: t.SourceRange().Ptr(),
			}}
		}
		what, known = "axis", s.env.Axes
	default:
		labels, ok := s.env.Refs[root]
		if !ok {
			return nil // HCL reports it, with a suggestion
		}
		what, known = root, labels
	}
	name, at, ok := second(t)
	if !ok || slices.Contains(known, name) {
		return nil
	}
	return hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "Unknown " + what,
		Detail:  fmt.Sprintf("There is no %s %q.%s", what, name, hint(what, name, known)),
		Subject: hcl.RangeBetween(t.SourceRange(), at).Ptr(),
	}}
}

// hint says what to write instead of a name that does not exist.
func hint(what, name string, known []string) string {
	switch {
	case len(known) > 0:
		return suggest.Hint(name, known)
	case what == "axis":
		return " The matrix has no axis."
	case what == "local":
		return fmt.Sprintf(" Write locals { %s = … }.", name)
	default:
		return fmt.Sprintf(" Write a block: %s %q { … }.", what, name)
	}
}

// second is the name after the root of a traversal.
func second(t hcl.Traversal) (string, hcl.Range, bool) {
	if len(t) < 2 {
		return "", hcl.Range{}, false
	}
	switch step := t[1].(type) {
	case hcl.TraverseAttr:
		return step.Name, step.SrcRange, true
	case hcl.TraverseIndex:
		if step.Key.Type() == cty.String && step.Key.IsKnown() && !step.Key.IsNull() {
			return step.Key.AsString(), step.SrcRange, true
		}
	}
	return "", hcl.Range{}, false
}

// explain rewrites what HCL says about functions that fail.
func explain(diags hcl.Diagnostics) hcl.Diagnostics {
	for i, d := range diags {
		if unknown, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallUnknownDiagExtra](d); ok {
			name := unknown.CalledFunctionName()
			d.Detail = fmt.Sprintf("There is no function %q.%s", name, suggest.Hint(name, FunctionNames()))
		}
		call, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](d)
		if !ok {
			continue
		}
		err := call.FunctionCallError()
		if _, ok := errors.AsType[function.PanicError](err); ok { // of a library, with a stack
			d.Detail = fmt.Sprintf("Call to function %q failed: it cannot work on these values.", call.CalledFunctionName())
			continue
		}
		if errors.Is(err, errTooLarge) || errors.Is(err, errInfinite) {
			at := hcl.Range{}
			if d.Subject != nil {
				at = *d.Subject
			}
			diags[i] = tooLarge(at, err)
		}
	}
	return diags
}

func tooLarge(at hcl.Range, err error) *hcl.Diagnostic {
	detail := strings.ToUpper(err.Error()[:1]) + err.Error()[1:] + "."
	summary := "Too much to evaluate"
	if errors.Is(err, errInfinite) {
		summary = "Not a number"
	}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &at}
}

// ReadFile is the content of a file, by the rules of functions that read.
// Safe for concurrent use.
func (e *Env) ReadFile(path string) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reader.Read(path)
}

// Plain is a scope for expressions that refer to nothing and call only functions
// that look at their arguments alone.
func Plain() *Scope {
	e := &Env{base: &hcl.EvalContext{Functions: pure()}}
	for name, f := range e.base.Functions {
		e.base.Functions[name] = limited(f)
	}
	return e.Outside("There is no matrix.")
}

// FunctionNames are the names of the functions of an experiment, sorted.
var FunctionNames = sync.OnceValue(func() []string {
	return slices.Sorted(maps.Keys(NewEnv(nil, nil, Names{}).base.Functions))
})
