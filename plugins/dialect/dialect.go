// Package dialect is what the dialects of model providers have in common: the
// content of a request, the metering of a reply, the errors of a gateway, and
// server-sent events. Each dialect implements Dialect in its own folder.
//
// It must not know any provider, do any networking, or decide any policy.
package dialect

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/berth-eval/berth/plugins/model"
)

// Kind is the purpose of a call.
type Kind int

// The kinds of calls. The zero value is not valid.
const (
	Generate Kind = iota + 1 // generates tokens, and costs money
	Count                    // counts the tokens of a request that is not made
	List                     // names models
)

// Call is the information in the method and path of a request.
type Call struct {
	Kind   Kind
	Path   string // below the base address of the provider, with a leading slash
	Model  string // named in the path; empty: in the body
	Stream bool   // the path asks for a stream; false: the body says
	Array  bool   // the stream is one JSON array, sent in pieces, instead of events
}

// Facts are the properties of a request that the gateway needs.
type Facts struct {
	Model     string
	Stream    bool
	Silent    bool   // its stream would not report usage
	MaxOutput Tokens // of one answer; 0: not set
	Answers   Tokens // number of answers requested; 0: one
	// Continues is the member that names an earlier answer, stored by the
	// provider, which this request continues; empty if there is none.
	Continues string
	Media     Media
	CacheHour bool // it may ask to keep input in a cache for an hour
	// Predicted is how many bytes of the answer the client predicts: tokens of a
	// prediction that does not come true are output, too.
	Predicted int64
}

// Media are the images, documents and recordings in a request.
type Media struct {
	Data   [][]byte // the parts of the request that are not text
	Images int64    // images of known size
	Tokens int64    // that providers count for those, at most
	// Unbounded says that there are others: only the model's context bounds their
	// tokens.
	Unbounded bool
	Audio     bool // it has audio, or asks for some: its tokens have their own price
}

// Edit is a change that the gateway makes to a request. The zero value changes
// nothing.
type Edit struct {
	Model      string          // to request instead; empty keeps it
	Parameters json.RawMessage // object that is merged over the request; empty means none
	AskUsage   bool            // makes a stream report its usage, in dialects where this has to be requested
}

// Usage is the usage of one reply, in tokens.
type Usage struct {
	Input      int64 `json:"input"`                    // with Cached and CacheWrite
	Cached     int64 `json:"cached,omitempty"`         // of Input, read from the provider's cache
	CacheWrite int64 `json:"cache_write,omitempty"`    // of Input, written to it
	CacheHour  int64 `json:"cache_write_1h,omitempty"` // of CacheWrite, stored for an hour
	Output     int64 `json:"output"`                   // with Reasoning
	Reasoning  int64 `json:"reasoning,omitempty"`      // of Output
}

// Reading is the result of a meter.
type Reading struct {
	ID    string // the provider's own id of the reply; empty: it has none
	Usage Usage
	Raw   json.RawMessage // the provider's records of usage, as one; nil: there was none
	// StatedUSD is the cost that the provider states; nil: it states none.
	StatedUSD *float64
	// Complete says that the usage is final and was read completely.
	Complete bool
	// Ended says that the reply reached its regular end, and was not cut off.
	Ended bool
	// Stop is why the model stopped, in the provider's word, or Called if it calls a
	// tool of the client; empty: not known.
	Stop string
	// Said is the number of bytes of text, thought and arguments in the reply.
	Said int64
	// Invalid says that an event of the stream was not valid JSON.
	Invalid bool
	// Error is the provider's error, in the middle of a stream or instead of a
	// reply.
	Error string
	// Notes name members that were not read, because their form is unknown.
	Notes []string
}

// FailureKind is the reason why the gateway itself answers instead of a
// provider.
type FailureKind int

// The kinds of failures. The zero value is not valid.
const (
	BadToken    FailureKind = iota + 1 // no token, or one for something else
	Over                               // the turn that the token belongs to is over
	BadRequest                         // it is malformed or not supported
	NotServed                          // there is nothing at this address
	Spent                              // a budget is used up
	Overloaded                         // the provider accepts no more requests at the moment
	Unreachable                        // the provider cannot be reached
)

// Failure is an error answer of the gateway.
type Failure struct {
	Kind    FailureKind
	Message string
	Retry   time.Duration // when to try again; 0: not given
}

// Variables are the names of the environment variables by which libraries of a
// provider find it.
type Variables struct {
	Keys      []string
	Addresses []string // have a base address in the form of Dialect.Base
}

// Response is a whole answer. Header contains only what the dialect needs.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Dialect is the wire format of a provider. A value serves many requests at the
// same time: every method is safe for concurrent use.
type Dialect interface {
	Name() model.Dialect
	// Base returns the address of the provider that the dialect is named after,
	// in the form that its libraries use.
	Base() string
	// Variables returns the environment variables that libraries of the provider
	// read.
	Variables() Variables
	// Call returns the purpose of a request; false if it does not belong to
	// this dialect.
	Call(r *http.Request) (Call, bool)
	// Token returns the key of a request; empty if there is none.
	Token(r *http.Request) string
	// Authorize removes every key from a request to the provider and sets this
	// one; an empty key sets none.
	Authorize(r *http.Request, key string)
	// Facts reads the body of a request.
	Facts(c Call, body *Object) (Facts, error)
	// Restrict removes from a request, or refuses, all features that could make
	// the provider fetch or run something, except those that the dialect knows
	// to be harmless and the names in allowed. It returns the names of what it
	// removed, and of the first feature that it refuses; empty: none.
	Restrict(c Call, body *Object, allowed []string) (dropped []string, refused string)
	// Edit changes a request. It may also change the path of the call.
	Edit(c *Call, body *Object, e Edit) error
	// Fleeting are members of a request that say nothing about the answer and
	// differ from run to run: ids of clients, keys of caches.
	Fleeting() []string
	// Rates returns the members of a request that choose another price, with
	// the values that cost no more than the usual price.
	Rates() map[string][]string
	// Hide reports whether an event is in a stream only because of
	// Edit.AskUsage.
	Hide(e Event) bool
	// Smallest returns the smallest streaming request for the model, which
	// every model of the provider can answer.
	Smallest(model string) (Call, []byte)
	// Failure makes an error answer in the dialect's format. It never tells the
	// client to retry something that cannot work.
	Failure(f Failure) Response
	// Late makes the same error for the middle of a stream.
	Late(f Failure) []byte
	// KeepAlive returns bytes that a client of a stream of events ignores.
	KeepAlive() []byte
	// Listed answers a request for the list of models.
	Listed(names []string) []byte
}

// Called is why a model stopped that calls a tool of the client.
const Called = "tool_calls"

// JSON returns v as JSON. Encoding v must not be able to fail.
func JSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("gateway: a reply of ours cannot be written: " + err.Error())
	}
	return b
}
