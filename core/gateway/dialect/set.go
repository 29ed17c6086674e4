package dialect

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/model"
)

// Set is what a gateway knows of model providers. The zero value knows none.
type Set struct {
	// Dialects are the dialects that it speaks. The last one takes a request that
	// fits several. A scripted model speaks it to a client that names none.
	Dialects []Dialect
	// Script reads the file of a scripted model. The function that it returns
	// begins a session with the model. Nil: there are no scripted models.
	Script func(path string) (session func() Scripted, err error)
	// Models tells what is known of models by their names, at the addresses of their
	// providers. Nil: nothing.
	Models func() map[string]Known
}

// Known is what is known of a model.
type Known struct {
	Price     *cell.Price // nil: not known
	Context   int64       // tokens of input that a request may have; 0: not known
	MaxOutput int64       // tokens that an answer may have; 0: not known
}

// Scripted is a session with a scripted model. It is safe for concurrent use.
type Scripted interface {
	// Send replies as a provider would. The body of the reply ends when ctx does.
	Send(ctx context.Context, q Request) (*http.Response, error)
}

// Request is a request to a scripted model.
type Request struct {
	Dialect Dialect
	Call    Call
	Facts   Facts
	Body    *Object
}

// ErrDropped means that a script ends the connection without an answer.
var ErrDropped = errors.New("the script drops the connection")

// Known is what is known of a model by its name. The zero value: nothing.
func (s *Set) Known(name string) Known {
	if s.Models == nil {
		return Known{}
	}
	return s.Models()[strings.TrimPrefix(name, "models/")]
}

// Usual is the last dialect. The set must have one.
func (s *Set) Usual() Dialect { return s.Dialects[len(s.Dialects)-1] }

// Named is the dialect of that name, or nil.
func (s *Set) Named(name model.Dialect) Dialect {
	for _, d := range s.Dialects {
		if d.Name() == name {
			return d
		}
	}
	return nil
}

// Providers are the names of all dialects, and of the scripted model, which
// replies in each of them.
func (s *Set) Providers() []string {
	var names []string
	for _, d := range s.Dialects {
		names = append(names, string(d.Name()))
	}
	return append(names, string(model.DialectScript))
}

// Of finds the dialect of a request, and what it is for.
func (s *Set) Of(r *http.Request) (Dialect, Call, bool) {
	for _, d := range s.Dialects {
		if c, ok := d.Call(r); ok {
			return d, c, true
		}
	}
	return nil, Call{}, false
}
