package dialect

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/model"
)

// Set is the knowledge of a gateway about model providers. The zero value knows
// none.
type Set struct {
	// Dialects are the supported dialects. The last one handles a request that
	// fits several, and is the dialect of a scripted model for a client that
	// does not name one.
	Dialects []Dialect
	// Script reads the file of a scripted model and returns a function that
	// starts a session with it. Nil: there are no scripted models.
	Script func(path string) (session func() Scripted, err error)
	// Models returns the known models by name, at the addresses of their
	// providers. Nil: none are known.
	Models func() map[string]Known
}

// Known is the known data of a model.
type Known struct {
	Price     *cell.Price // nil: not known
	Context   int64       // largest number of input tokens of a request; 0: not known
	MaxOutput int64       // largest number of tokens of an answer; 0: not known
}

// Scripted is a session with a scripted model. It is safe for concurrent use.
type Scripted interface {
	// Send replies like a provider. The body of the reply ends when ctx ends.
	Send(ctx context.Context, q Request) (*http.Response, error)
}

// Request is a request to a scripted model.
type Request struct {
	Dialect Dialect
	Call    Call
	Facts   Facts
	Body    *Object
}

// ErrDropped means that a script closes the connection without an answer.
var ErrDropped = errors.New("the script drops the connection")

// Known returns the known data of a model by its name; zero if there is none.
func (s *Set) Known(name string) Known {
	if s.Models == nil {
		return Known{}
	}
	return s.Models()[strings.TrimPrefix(name, "models/")]
}

// Usual returns the last dialect. The set must have one.
func (s *Set) Usual() Dialect { return s.Dialects[len(s.Dialects)-1] }

// Named returns the dialect with that name, or nil.
func (s *Set) Named(name model.Dialect) Dialect {
	for _, d := range s.Dialects {
		if d.Name() == name {
			return d
		}
	}
	return nil
}

// Providers returns the names of all dialects, and of the scripted model, which
// replies in each of them.
func (s *Set) Providers() []string {
	var names []string
	for _, d := range s.Dialects {
		names = append(names, string(d.Name()))
	}
	return append(names, string(model.DialectScript))
}

// Of returns the dialect of a request, and its call.
func (s *Set) Of(r *http.Request) (Dialect, Call, bool) {
	for _, d := range s.Dialects {
		if c, ok := d.Call(r); ok {
			return d, c, true
		}
	}
	return nil, Call{}, false
}
