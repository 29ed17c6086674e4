package eval

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// Secrets gives the value of a secret by its name: "KEY" for secret("KEY"), and
// "var.x" for a sensitive variable. It returns [cty.NilVal] for one that is not
// set.
type Secrets func(name string) cty.Value

// Labels gives each secret its own name as its value: `${secret("KEY")}`. What
// an expression makes of them is shown, and is part of identities.
func Labels(name string) cty.Value {
	if strings.HasPrefix(name, varPrefix) {
		return cty.StringVal("${" + name + "}")
	}
	return cty.StringVal(fmt.Sprintf("${secret(%q)}", name))
}

// Real gives the real values, which must never be printed. Neither must what an
// expression makes of them, or the diagnostics of its evaluation.
func (e *Env) Real(name string) cty.Value {
	if v, ok := strings.CutPrefix(name, varPrefix); ok {
		return e.Variables[v].Value
	}
	if s, ok := e.lookupEnv(name); ok {
		return cty.StringVal(s)
	}
	return cty.NilVal
}

// varPrefix begins the names of sensitive variables. The name of a host variable
// has no dot.
const varPrefix = "var."

// Mark is on every value that is a secret, or made of one.
type Mark struct{ Name string }

// SecretsOf are the names of the secrets that v is made of, at any depth, sorted.
func SecretsOf(v cty.Value) []string {
	_, marks := v.UnmarkDeep()
	var names []string
	for m := range marks {
		if s, ok := m.(Mark); ok {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// value is the value of a secret of a type, with its mark: unknown without
// Secrets, and if they have none of this name and type.
func (s Secrets) value(name string, t cty.Type) cty.Value {
	v := cty.UnknownVal(t)
	if s != nil {
		if given := s(name); given != cty.NilVal && given.Type().Equals(t) {
			v = given
		}
	}
	return v.Mark(Mark{name})
}

// function is the function secret.
func (s Secrets) function() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "name", Type: cty.String}},
		Type: func(args []cty.Value) (cty.Type, error) {
			if args[0].IsKnown() && !isVariableName(args[0].AsString()) {
				return cty.NilType, function.NewArgErrorf(0, "write the name of an environment variable: letters, digits and underscores")
			}
			return cty.String, nil
		},
		RefineResult: func(b *cty.RefinementBuilder) *cty.RefinementBuilder { return b.NotNull() },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return s.value(args[0].AsString(), cty.String), nil
		},
	})
}

// isVariableName says whether a host variable can have the name.
func isVariableName(s string) bool {
	if s == "" || len(s) > 200 || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}
