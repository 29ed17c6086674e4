// Package dialect is what the dialects of model providers have in common: what a
// request asks for, how a reply is metered, how a gateway says no, and the
// server-sent events that all of them stream. Each dialect implements Dialect
// in a folder of its own.
//
// It must not know any provider, do any networking, or decide any policy.
package dialect

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/berth-eval/berth/plugins/model"
)

// Kind is what a call is for.
type Kind int

// The kinds of calls. The zero value is not valid.
const (
	Generate Kind = iota + 1 // makes tokens, and costs
	Count                    // counts tokens of a request that is not made
	List                     // names models
)

// Call is what the method and the path of a request say.
type Call struct {
	Kind   Kind
	Path   string // below the base address of the provider, with a leading slash
	Model  string // named in the path; empty: in the body
	Stream bool   // the path asks for a stream; false: the body says
	Array  bool   // that stream is one JSON array, which comes in pieces, and no events
}

// Facts are what the gateway has to know of a request.
type Facts struct {
	Model     string
	Stream    bool
	Silent    bool   // its stream would not tell what it used
	MaxOutput Tokens // of one answer; 0: it does not say
	Answers   Tokens // that are asked for at once; 0: one
	// Continues is the member that names an earlier answer, kept by the provider,
	// from which it goes on; empty: it holds all itself.
	Continues string
	Inline    int64 // bytes of images and files in it, which are no text
	Images    int64 // how many those are
	CacheHour bool  // it may ask to keep input in a cache for an hour
}

// Edit is what the gateway changes in a request. The zero value changes
// nothing.
type Edit struct {
	Model      string          // to be asked for instead; empty keeps it
	Parameters json.RawMessage // object that is merged over the request; empty means none
	AskUsage   bool            // makes a stream tell its usage where a dialect does not by itself
}

// Usage is what one reply used, in tokens.
type Usage struct {
	Input      int64 `json:"input"`                    // with Cached and CacheWrite
	Cached     int64 `json:"cached,omitempty"`         // of Input, read from the provider's cache
	CacheWrite int64 `json:"cache_write,omitempty"`    // of Input, written to it
	CacheHour  int64 `json:"cache_write_1h,omitempty"` // of CacheWrite, to be kept for an hour
	Output     int64 `json:"output"`                   // with Reasoning
	Reasoning  int64 `json:"reasoning,omitempty"`      // of Output
}

// Meter reads what a reply used while it passes by. It never fails: what it
// does not understand is not its business. Not safe for concurrent use.
type Meter interface {
	// Event is one event of a stream.
	Event(e Event)
	// Body is a whole reply.
	Body(body []byte)
	// Read is what was said so far.
	Read() Reading
}

// Reading is what a meter has seen.
type Reading struct {
	Usage Usage
	Raw   json.RawMessage // the provider's own record, the last one; nil: there was none
	// Complete says that the usage is final, and all of it could be read.
	Complete bool
	// Ended says that the reply came to its own end, and did not merely stop.
	Ended bool
	// Said is how many bytes of text, thought and arguments the reply held, at
	// most.
	Said int64
	// Invalid says that an event of the stream was no JSON.
	Invalid bool
	// Error is what the provider said went wrong, in the middle of a stream or
	// instead of a reply.
	Error string
}

// FailureKind is why the gateway itself answers instead of a provider.
type FailureKind int

// The kinds of failures. The zero value is not valid.
const (
	BadToken    FailureKind = iota + 1 // no token, or one that is good for something else
	Over                               // the turn that the token is good for is over
	BadRequest                         // it cannot be understood or is not served
	NotServed                          // no such thing at this address
	Spent                              // a budget has run out
	Overloaded                         // the provider takes no more requests for now
	Unreachable                        // the provider cannot be reached
)

// Failure is an answer of the gateway.
type Failure struct {
	Kind    FailureKind
	Message string
	Retry   time.Duration // when to ask again; 0: it is not said
}

// Response is a whole answer. Header never holds more than the dialect needs.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Dialect is the wire format of a provider. A value serves many requests at
// once: every method is safe for concurrent use.
type Dialect interface {
	Name() model.Dialect
	// Base is the address of the provider that the dialect is named for, as
	// its libraries write it.
	Base() string
	// Call says what a request is for; false: it is not of this dialect.
	Call(r *http.Request) (Call, bool)
	// Token is the key that came with a request; empty: none.
	Token(r *http.Request) string
	// Authorize takes every key out of a request to the provider and puts this
	// one in; empty puts none.
	Authorize(r *http.Request, key string)
	// Facts reads the body of a request.
	Facts(c Call, body *Object) (Facts, error)
	// Restrict takes out of a request, or refuses, what would make the provider
	// fetch or run something: all but what the dialect knows not to.
	// The names in allowed may stay. It returns the names of what it took out, and
	// of the first that it refuses; empty: none.
	Restrict(c Call, body *Object, allowed []string) (dropped []string, refused string)
	// Edit changes a request. It may change the path of the call, too.
	Edit(c *Call, body *Object, e Edit) error
	// Fleeting are members of a request that say nothing about the answer and
	// differ from run to run: ids of clients, keys of caches.
	Fleeting() []string
	// Rates are the members of a request that choose another price, with the
	// values that cost no more than the usual one.
	Rates() map[string][]string
	// Hide says whether an event is in a stream only because of Edit.AskUsage.
	Hide(e Event) bool
	Meter() Meter
	// Smallest is the smallest request for a stream of that model, which every
	// model of the provider can answer.
	Smallest(model string) (Call, []byte)
	// Failure is an answer of the gateway in the dialect's own words. It never
	// invites to try again what cannot work.
	Failure(f Failure) Response
	// Late is the same in the middle of a stream.
	Late(f Failure) []byte
	// KeepAlive is what a client of a stream of events reads over.
	KeepAlive() []byte
	// Listed answers a question for models.
	Listed(names []string) []byte
}

// JSON is v, which always can be written.
func JSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("gateway: a reply of ours cannot be written: " + err.Error())
	}
	return b
}
