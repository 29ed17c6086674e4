package dialect

import (
	"context"
	"errors"
	"net/http"
	"strings"

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
	// Replay opens the record of an attempt, to answer requests of a role to a
	// model from it: file has the lines of the exchanges, name is what the role
	// calls the model, and fleeting are the members of requests that do not count
	// when requests are compared. Nil: no model can be replayed.
	Replay func(file, role, name string, fleeting []string) (Replayed, error)
	// Models returns the known models by name, at the addresses of their
	// providers. Nil: none are known.
	Models func() map[string]Known
}

// Known is the known data of a model.
type Known struct {
	Price     *Price // nil: not known
	Context   int64  // largest number of input tokens of a request; 0: not known
	MaxOutput int64  // largest number of tokens of an answer; 0: not known
	// ImageTokens is what the model counts for an image at most, if that is more
	// than other models do; 0: it is not.
	ImageTokens int64
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

// Replayed is a model whose answers were recorded. It is safe for concurrent use.
type Replayed interface {
	// Answer answers a request as it was answered in the record. Fails with
	// ErrDiffers if the record has no such request.
	Answer(q *Replay) (*http.Response, Served, error)
}

// Replay is a request to be answered from a record.
type Replay struct {
	Kind  string // as in the record
	Path  string
	Match string // digest without the members that may differ
	Body  []byte // the whole request
}

// Served says how a request was answered from a record.
type Served struct {
	// Fallback is the model that had served the request as a fallback; empty:
	// the model itself had.
	Fallback string
	// Ignored is the first difference from the recorded request, in a value
	// that changes from run to run, as a text; empty: there is none.
	Ignored string
}

// ErrDiffers means that a request was not recorded. The error that wraps it says
// where the request differs from the next one in the record.
var ErrDiffers = errors.New("the request was not recorded")

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

// Speaks returns the dialects in which a model of the provider answers. They
// are all of them for a scripted model.
func (s *Set) Speaks(provider string) []Dialect {
	if provider == string(model.DialectScript) {
		return s.Dialects
	}
	if d := s.Named(model.Dialect(provider)); d != nil {
		return []Dialect{d}
	}
	return nil
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
