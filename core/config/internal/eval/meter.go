package eval

import (
	"errors"
	"fmt"
	"maps"
	"runtime"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// Limits of an evaluation. An honest experiment stays below a hundredth.
const (
	// MaxValue is the largest value, in units: a byte of text or a number is one,
	// an element of a list, map or object 64.
	MaxValue = 1 << 20
	// MaxScope is what the evaluations of one cell may make in all, in units.
	MaxScope = 32 << 20
	// iteration is what one round of a `for` costs before it does anything, so
	// that rounds that fail end as well: 16,384 in one cell.
	iteration = 2048
	// maxExponent bounds numbers: 2^4096 has 1,234 digits.
	maxExponent = 4096
	element     = 64
)

// errTooLarge is what a metered expression fails with.
var errTooLarge = errors.New("the value is too large")

// errSpent is the same for a whole scope.
var errSpent = fmt.Errorf("%w", errTooLarge)

// errInfinite is what a division by zero leads to.
var errInfinite = errors.New("the number is infinite")

// meter counts what one scope makes.
type meter struct {
	left  int
	ended func() error // of the context; nil: never
	why   error        // of an evaluation that was ended
}

// must ends the evaluation when err is not nil. HCL goes on after an error, to
// find more of them, and would finish every loop; a panic is caught by cty. So
// an evaluation has a goroutine of its own, which ends here; see [Scope.run].
func (m *meter) must(err error) {
	if err != nil {
		m.why = err
		runtime.Goexit()
	}
}

func (m *meter) charge(v cty.Value) error {
	units, err := weigh(v, MaxValue)
	if err != nil {
		return err
	}
	return m.spend(units + 1)
}

func (m *meter) spend(units int) error {
	if m.ended != nil {
		if err := m.ended(); err != nil {
			return err
		}
	}
	if units < 0 || units > m.left {
		return fmt.Errorf("%w: everything that is evaluated for one cell may have %d MiB in all", errSpent, MaxScope>>20)
	}
	m.left -= units
	return nil
}

// weigh measures v and stops at limit, so that a value with shared parts does
// not take longer than a large one.
func weigh(v cty.Value, limit int) (units int, err error) {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() {
		return 1, nil
	}
	switch t := v.Type(); {
	case t == cty.String:
		units = len(v.AsString())
	case t == cty.Number:
		f := v.AsBigFloat()
		if f.IsInf() {
			return 0, errInfinite
		}
		if e := f.MantExp(nil); e > maxExponent || e < -maxExponent {
			return 0, fmt.Errorf("%w: a number may have 1,234 digits at most", errTooLarge)
		}
		units = 1
	case t.IsListType(), t.IsSetType(), t.IsTupleType(), t.IsMapType(), t.IsObjectType():
		for it := v.ElementIterator(); it.Next(); {
			key, e := it.Element()
			units += element
			for _, part := range []cty.Value{key, e} {
				n, err := weigh(part, limit-units)
				if err != nil {
					return 0, err
				}
				units += n
			}
		}
	default:
		units = 1
	}
	if units > limit {
		return 0, fmt.Errorf("%w: at most %d MiB, or %d elements", errTooLarge, MaxValue>>20, MaxValue/element)
	}
	return units, nil
}

// metered is f with its results charged to the meter of the moment, and with
// the marks of its arguments on every unknown result: cty drops them where a
// function handles marks itself and an argument is unknown, as all secrets are.
func metered(f function.Function, m func() *meter) function.Function {
	all := func(p function.Parameter) function.Parameter {
		p.AllowUnknown, p.AllowMarked, p.AllowDynamicType = true, true, true
		return p
	}
	spec := &function.Spec{
		Type: f.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, err := f.Call(args)
			if err != nil {
				return v, err
			}
			m().must(m().charge(v))
			return v.WithMarks(dropped(v, args)), nil
		},
	}
	for _, p := range f.Params() {
		spec.Params = append(spec.Params, all(p))
	}
	if p := f.VarParam(); p != nil {
		variadic := all(*p)
		spec.VarParam = &variadic
	}
	return function.New(spec)
}

// dropped are the marks that v must have and has not.
func dropped(v cty.Value, args []cty.Value) cty.ValueMarks {
	marks := cty.ValueMarks{}
	for _, a := range args {
		if a.ContainsMarked() {
			_, ms := a.UnmarkDeep()
			maps.Copy(marks, ms)
		}
	}
	if len(marks) > 0 && !bareUnknown(v) {
		return nil
	}
	return marks
}

// bareUnknown says whether something unknown in v has no mark.
func bareUnknown(v cty.Value) bool {
	if v.IsMarked() {
		return false
	}
	if !v.IsKnown() {
		return true
	}
	if v.IsNull() || !v.CanIterateElements() {
		return false
	}
	for it := v.ElementIterator(); it.Next(); {
		if _, e := it.Element(); bareUnknown(e) {
			return true
		}
	}
	return false
}

// guard is the name of the function that [Weave] puts around operands. It is
// no identifier, so no experiment can call it.
const guard = "size limit"

// guardFunc returns its argument, charged.
func guardFunc(m func() *meter) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{
			Name: "value", Type: cty.DynamicPseudoType,
			AllowNull: true, AllowUnknown: true, AllowDynamicType: true, AllowMarked: true,
		}},
		Type: func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			m().must(m().charge(args[0]))
			return args[0], nil
		},
	})
}

// tick is the name of the function that [Weave] puts into the condition of
// every `for`: it is true, and costs.
const tick = "iteration"

func tickFunc(m func() *meter) function.Function {
	return function.New(&function.Spec{
		Type: function.StaticReturnType(cty.Bool),
		Impl: func([]cty.Value, cty.Type) (cty.Value, error) {
			m().must(m().spend(iteration))
			return cty.True, nil
		},
	})
}

// Weave puts a guard around every operand that could make a value grow before
// it is seen again: parts of templates, what a `for` makes of an element, and
// the results of arithmetic, which HCL may turn into text. It changes the
// expressions below node in place; call it once after parsing.
func Weave(node hclsyntax.Node) hcl.Diagnostics {
	return hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		switch e := n.(type) {
		case *hclsyntax.LiteralValueExpr:
			if _, err := weigh(e.Val, MaxValue); err != nil {
				return hcl.Diagnostics{tooLarge(e.SrcRange, err)}
			}
		case *hclsyntax.TemplateExpr:
			weaveAll(e.Parts, true)
		case *hclsyntax.TupleConsExpr:
			weaveAll(e.Exprs, false)
		case *hclsyntax.FunctionCallExpr:
			if e.Name != guard {
				weaveAll(e.Args, false)
			}
		case *hclsyntax.ForExpr:
			e.ValExpr = weave(e.ValExpr, true)
			e.KeyExpr = weave(e.KeyExpr, true)
			e.CondExpr = weaveTick(e.CondExpr, e.Range())
		case *hclsyntax.ConditionalExpr:
			e.Condition, e.TrueResult, e.FalseResult = weave(e.Condition, false), weave(e.TrueResult, false), weave(e.FalseResult, false)
		case *hclsyntax.BinaryOpExpr:
			e.LHS, e.RHS = weave(e.LHS, false), weave(e.RHS, false)
		case *hclsyntax.UnaryOpExpr:
			e.Val = weave(e.Val, false)
		case *hclsyntax.IndexExpr:
			e.Key = weave(e.Key, false)
		case *hclsyntax.ObjectConsKeyExpr:
			e.Wrapped = weave(e.Wrapped, false)
		case *hclsyntax.ObjectConsExpr:
			for i := range e.Items {
				e.Items[i].ValueExpr = weave(e.Items[i].ValueExpr, false)
			}
		case *hclsyntax.TemplateWrapExpr:
			e.Wrapped = weave(e.Wrapped, false)
		}
		return nil
	})
}

func weaveTick(cond hclsyntax.Expression, r hcl.Range) hclsyntax.Expression {
	call := &hclsyntax.FunctionCallExpr{Name: tick, NameRange: r, OpenParenRange: r, CloseParenRange: r}
	if cond == nil {
		return call
	}
	return &hclsyntax.BinaryOpExpr{LHS: call, Op: hclsyntax.OpLogicalAnd, RHS: cond, SrcRange: cond.Range()}
}

func weaveAll(es []hclsyntax.Expression, always bool) {
	for i := range es {
		es[i] = weave(es[i], always)
	}
}

// weave guards e when it is arithmetic, or always.
func weave(e hclsyntax.Expression, always bool) hclsyntax.Expression {
	switch inner := e.(type) {
	case nil:
		return e
	case *hclsyntax.BinaryOpExpr, *hclsyntax.UnaryOpExpr, *hclsyntax.ParenthesesExpr, *hclsyntax.ConditionalExpr:
	case *hclsyntax.LiteralValueExpr:
		return e
	case *hclsyntax.FunctionCallExpr:
		if inner.Name == guard || !always {
			return e
		}
	default:
		if !always {
			return e
		}
	}
	r := e.Range()
	return &hclsyntax.FunctionCallExpr{
		Name: guard, Args: []hclsyntax.Expression{e},
		NameRange: r, OpenParenRange: r, CloseParenRange: r,
	}
}
