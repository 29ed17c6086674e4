// Package chat is a narrow way to talk to a model through the endpoint that the
// core gives to a plugin: one question, one whole reply, whatever dialect the
// endpoint speaks.
//
//	m, err := chat.Dial(setup.Models["default"])
//	reply, err := m.Ask(ctx, chat.Request{Messages: []chat.Message{{Role: chat.User, Text: "…"}}})
//
// It must not hold a provider's key, know a price, stream, or use a vendor's
// own library: metering, budgets and pace are the gateway's.
package chat

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
)

// Model answers. One value may be used from several goroutines.
type Model interface {
	// Ask sends a conversation and returns the reply to it. What may pass on a
	// second try is tried again, until ctx ends or the tries are used up. Fails
	// with ErrTooLong, ErrUnavailable or ErrRefused.
	Ask(ctx context.Context, r Request) (Reply, error)
}

// What Ask fails with, beside the end of its context.
var (
	// ErrTooLong: the conversation does not fit into the model's context.
	ErrTooLong = errors.New("the conversation is too long for the model")
	// ErrUnavailable: the model could not be reached, or gave no usable answer,
	// after all tries. It is also agent.ErrModel.
	ErrUnavailable = &modelError{"the model gives no answer"}
	// ErrRefused: the endpoint will not answer this request, however often it
	// is asked: the token is no longer good, a budget is spent, or the request
	// makes no sense to it. It is also agent.ErrModel.
	ErrRefused = &modelError{"the model refuses the request"}
)

// modelError is an error that the core counts as the model's.
type modelError struct{ text string }

func (e *modelError) Error() string { return e.text }
func (e *modelError) Unwrap() error { return agent.ErrModel }

// Role is who said a message.
type Role string

// The roles. The zero value is not valid.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Request is a conversation that waits for a reply.
type Request struct {
	System   string // instructions that stand above the conversation; may be empty
	Messages []Message
	Tools    []Tool
	// Effort is how hard the model should think, in the provider's own word
	// ("low", "high"); empty leaves it to the provider.
	Effort string
	// MaxTokens bounds the reply; 0 leaves it to the provider, or is
	// DefaultMaxTokens where the dialect wants a number.
	MaxTokens   int64
	Temperature *float64 // nil leaves it to the provider
}

// DefaultMaxTokens is the bound of a reply in dialects that want one.
const DefaultMaxTokens = 16384

// Message is one part of a conversation. Calls belong to the assistant's, and
// Results and Images to the user's.
type Message struct {
	Role    Role
	Text    string
	Images  []Image
	Calls   []Call
	Results []Result
}

// Image is a picture.
type Image struct {
	MediaType string // image/png, image/jpeg, image/gif, image/webp
	Data      []byte
}

// Tool is what the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of an object
}

// Call is a tool call of the model.
type Call struct {
	ID        string
	Name      string
	Arguments json.RawMessage // as the model wrote them: may be no valid JSON
	// Signature is what some providers want to have back with the call; to be
	// kept as it is. Empty without.
	Signature string
}

// Result answers a call.
type Result struct {
	CallID string
	Text   string
	Failed bool
}

// Stop is why a reply ended.
type Stop string

// The reasons. What a provider says beyond them is Done.
const (
	Done    Stop = "done"
	Length  Stop = "length"  // cut off at MaxTokens or at the model's own bound
	Refused Stop = "refused" // the model, or a filter, would not answer
)

// Reply is what the model said.
type Reply struct {
	Text     string
	Thinking string // what the provider shows of it
	Calls    []Call
	Stop     Stop
	Model    string // as the provider names it
	Usage    Usage
	Tries    int // requests that were sent for it, at least 1
}

// Usage is what the provider says that a reply used, in tokens. Nil means that
// it did not say.
type Usage struct {
	Input     *int64 // with Cached
	Cached    *int64 // of Input
	Output    *int64 // with Reasoning
	Reasoning *int64 // of Output
}

// Dialects are those that a client here speaks, the most usual first: what a
// plugin says in its Needs.
func Dialects() []model.Dialect {
	return []model.Dialect{model.DialectOpenAIChat, model.DialectAnthropic, model.DialectOpenAI, model.DialectGemini}
}
