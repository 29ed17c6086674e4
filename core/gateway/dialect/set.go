package dialect

import (
	"net/http"

	"github.com/berth-eval/berth/plugins/model"
)

// Set are the dialects that a gateway speaks. The last one takes a request that
// fits several, and is what a scripted model speaks to a client that does not
// say what it speaks.
type Set []Dialect

// Usual is the last dialect. The set must not be empty.
func (s Set) Usual() Dialect { return s[len(s)-1] }

// Named is the dialect of that name, or nil.
func (s Set) Named(name model.Dialect) Dialect {
	for _, d := range s {
		if d.Name() == name {
			return d
		}
	}
	return nil
}

// Providers are the names of all dialects, and of the scripted model, which
// replies in each of them.
func (s Set) Providers() []string {
	var names []string
	for _, d := range s {
		names = append(names, string(d.Name()))
	}
	return append(names, string(model.DialectScript))
}

// Of finds the dialect of a request, and what it is for.
func (s Set) Of(r *http.Request) (Dialect, Call, bool) {
	for _, d := range s {
		if c, ok := d.Call(r); ok {
			return d, c, true
		}
	}
	return nil, Call{}, false
}
