package eval

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// checked asks cost before f is called, for functions whose result can be much
// larger than their arguments, or that take much longer than reading them.
// cost is in units of the result.
func checked(f function.Function, cost func(args []cty.Value) (int, error)) function.Function {
	return function.New(&function.Spec{
		Params:   f.Params(),
		VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := affordable(args, cost); err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

func affordable(args []cty.Value, cost func([]cty.Value) (int, error)) error {
	plain := make([]cty.Value, len(args))
	for i, a := range args {
		if a.IsNull() || !a.IsWhollyKnown() {
			return nil // it will not be called, or fails by itself
		}
		plain[i], _ = a.UnmarkDeep()
	}
	units, err := cost(plain)
	if err == nil && (units > MaxValue || units < 0) {
		err = fmt.Errorf("%w: the result would have more than %d MiB", errTooLarge, MaxValue>>20)
	}
	return err
}

func distinctCost(args []cty.Value) (int, error) {
	if args[0].LengthInt() > 2000 { // it compares each with each
		return 0, function.NewArgErrorf(0, "%d elements, at most 2000 are allowed; toset takes more", args[0].LengthInt())
	}
	return 0, nil
}

func joinCost(args []cty.Value) (int, error) {
	n := 0
	for _, list := range args[1:] {
		n += list.LengthInt()
	}
	return n * len(args[0].AsString()), nil
}

func replaceCost(args []cty.Value) (int, error) {
	s, old, repl := args[0].AsString(), args[1].AsString(), args[2].AsString()
	return len(s) + strings.Count(s, old)*len(repl), nil
}

// regexCost counts the matches; each may bring every group of its own text.
func regexCost(args []cty.Value) (int, error) {
	s, repl := args[0].AsString(), args[2].AsString()
	re, err := regexp.Compile(args[1].AsString())
	if err != nil {
		return 0, nil //nolint:nilerr // the function itself says it better
	}
	matches := len(re.FindAllStringIndex(s, -1))
	return len(s) + matches*len(repl) + strings.Count(repl, "$")*len(s), nil
}

func indentCost(args []cty.Value) (int, error) {
	spaces, _ := args[0].AsBigFloat().Float64()
	if spaces < 0 || spaces > 1000 {
		return 0, function.NewArgErrorf(0, "between 0 and 1000 spaces")
	}
	s := args[1].AsString()
	return len(s) + int(spaces)*strings.Count(s, "\n"), nil
}

func productCost(args []cty.Value) (int, error) {
	n := 1
	for _, a := range args {
		if n *= a.LengthInt(); n > MaxValue {
			return n, nil
		}
	}
	return n * element * (1 + len(args)), nil
}

// formatCost bounds widths, and each verb by the longest argument.
func formatCost(args []cty.Value) (int, error) {
	f := args[0].AsString()
	digits := 0
	for _, c := range f {
		switch {
		case c == '*':
			return 0, function.NewArgErrorf(0, "a width of * is not supported: write the number")
		case c >= '0' && c <= '9':
			digits++
		default:
			digits = 0
		}
		if digits > 3 {
			return 0, function.NewArgErrorf(0, "a width may have three digits at most")
		}
	}
	longest := 1000
	for _, a := range args[1:] {
		n, err := weigh(a, MaxValue)
		if err != nil {
			return 0, err
		}
		longest = max(longest, 2*n)
	}
	if n := strings.Count(f, "%"); n > 100 || longest > MaxValue/4 {
		return len(f) + n*longest, nil
	}
	return len(f), nil
}
