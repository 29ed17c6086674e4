package eval

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// maxProduct bounds what a function asks for in one piece, before its result can be
// weighed.
const maxProduct = 256 << 20

// multiplies is f, whose result can be as large as the product of its arguments,
// with a limit on that product: a text counts its length, a list its elements, a
// number itself.
func multiplies(f function.Function, limit float64) function.Function {
	return checked(f, func(args []cty.Value) error {
		product := 1.0
		for _, a := range args {
			size := 1.0
			switch t := a.Type(); {
			case t == cty.String:
				size = float64(len(a.AsString()))
			case t == cty.Number:
				size, _ = a.AsBigFloat().Float64()
			case a.CanIterateElements():
				size = float64(a.LengthInt())
			}
			product *= max(1, size)
		}
		if product > limit {
			return fmt.Errorf("%w: at most %d MiB, or %d elements", errTooLarge, MaxValue>>20, MaxValue/element)
		}
		return nil
	})
}

// checked is f with a look at its arguments before it is called.
func checked(f function.Function, look func(args []cty.Value) error) function.Function {
	return function.New(&function.Spec{
		Params: f.Params(), VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			plain := make([]cty.Value, len(args))
			for i, a := range args {
				if a.IsNull() || !a.IsWhollyKnown() {
					return f.ReturnTypeForValues(args) // it will not be called, or fails by itself
				}
				plain[i], _ = a.UnmarkDeep()
			}
			if err := look(plain); err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}
