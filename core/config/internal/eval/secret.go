package eval

import (
	"slices"

	"github.com/zclconf/go-cty/cty"
)

// Mode says what a secret is during an evaluation.
type Mode int

// The modes.
const (
	// Shape makes secrets unknown, so that nothing can depend on them by
	// accident: the mode in which an experiment is loaded.
	Shape Mode = iota
	// Label puts the name of a secret in its place: `${secret("KEY")}`. For the
	// identity of values that are made of secrets; such a value is never used.
	Label
	// Real reads secrets. Its values and diagnostics must never be printed.
	Real
)

// Mark is on every value that is a secret, or made of one.
type Mark struct{ Name string }

// Secrets are the names of the secrets that v is made of, at any depth, sorted.
func Secrets(v cty.Value) []string {
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
