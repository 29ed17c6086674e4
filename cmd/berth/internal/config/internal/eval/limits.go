package eval

import (
	"errors"
	"fmt"
	"maps"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// Limits of an evaluation. An honest experiment stays below a hundredth.
const (
	// MaxValue is the largest value, in units: a byte of text or a number is one,
	// an element of a list, map or object 64.
	MaxValue = 1 << 20
	// maxExponent bounds numbers: 2^4096 has 1,234 digits.
	maxExponent = 4096
	element     = 64
)

// errTooLarge is what a function or an expression fails with whose value is.
var errTooLarge = errors.New("the value is too large")

// errInfinite is what a division by zero leads to.
var errInfinite = errors.New("the number is infinite")

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

// limited is f with a limit on the size of its results, and with the marks of
// its arguments on every unknown result: cty drops them where a function handles
// marks itself and an argument is unknown, as all secrets are.
func limited(f function.Function) function.Function {
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
			if _, err = weigh(v, MaxValue); err != nil {
				return cty.NilVal, err
			}
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
