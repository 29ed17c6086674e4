// Package chat is a small client for a model, through the endpoint that the
// core gives to a plugin: one request, one complete reply, in any dialect of
// the endpoint.
//
//	m, err := chat.Dial(setup.Models["default"])
//	reply, err := m.Ask(ctx, chat.Request{Messages: []chat.Message{{Role: chat.User, Text: "…"}}})
//
// It must not hold a provider's key, know a price, stream, or use a provider's
// own library. The gateway does metering, budgets and rate limits.
package chat

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
)

// Model answers requests. One value may be used from several goroutines.
type Model interface {
	// Ask sends a conversation and returns the reply to it. It retries
	// temporary errors until ctx ends or the tries are used up. Fails with
	// ErrTooLong, ErrUnavailable, ErrRefused or, if the request has a schema,
	// ErrBadReply, beside which it returns the last reply.
	Ask(ctx context.Context, r Request) (Reply, error)
}

// The errors of Ask, in addition to the end of its context.
var (
	// ErrTooLong means that the conversation does not fit into the model's
	// context.
	ErrTooLong = errors.New("the conversation is too long for the model")
	// ErrUnavailable means that the model could not be reached, or gave no
	// usable answer, after all tries. It is also agent.ErrModel.
	ErrUnavailable = &modelError{"the model gives no answer"}
	// ErrRefused means that retrying cannot help: the token is no longer valid,
	// a budget is spent, or the endpoint rejects the request as invalid. It is
	// also agent.ErrModel.
	ErrRefused = &modelError{"the model refuses the request"}
)

// modelError is an error that the core attributes to the model.
type modelError struct{ text string }

func (e *modelError) Error() string { return e.text }
func (e *modelError) Unwrap() error { return agent.ErrModel }

// Role is the author of a message.
type Role string

// The roles. The zero value is not valid.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Request is a conversation to reply to.
type Request struct {
	System   string // instructions before the conversation; may be empty
	Messages []Message
	Tools    []Tool
	// Effort is how hard the model should think, in the provider's own terms
	// ("low", "high"). Empty leaves it to the provider.
	Effort string
	// MaxTokens limits the reply. 0 leaves it to the provider, or means
	// DefaultMaxTokens in dialects that need a number.
	MaxTokens   int64
	Temperature *float64 // nil leaves it to the provider
	TopP        *float64 // the share of likely tokens to sample from; nil leaves it to the provider
	// Schema is a JSON Schema (2020-12, without references to other documents)
	// that the reply has to match. It is passed to the provider as its API has it,
	// or told to the model as text where it has no way, and the reply is always
	// checked here. Text around the JSON, and values of the wrong form with one
	// meaning, such as a quoted number, are understood. A model that replies
	// otherwise is told what is wrong and asked again, at most twice; after a reply
	// that was cut off it is asked once more, with more room. A reply that calls
	// tools is not checked. Empty means free text.
	Schema json.RawMessage

	schema *schema // for the provider; nil: none
	wide   bool    // MaxTokens counts, whatever the experiment's parameters say
}

// sampling sets what the request says about the reply, under the names of an API.
func (r *Request) sampling(q map[string]any, maxTokens, topP string) {
	if r.MaxTokens > 0 {
		q[maxTokens] = r.MaxTokens
	}
	if r.Temperature != nil {
		q["temperature"] = *r.Temperature
	}
	if r.TopP != nil {
		q[topP] = *r.TopP
	}
}

// tools returns the tools in the form of an API.
func (r *Request) tools(form func(Tool) object) (all []object) {
	for _, t := range r.Tools {
		all = append(all, form(t))
	}
	return all
}

// DefaultMaxTokens is the limit of a reply in dialects that need one.
const DefaultMaxTokens = 16384

// Message is one message of a conversation. Calls belong to the assistant, and
// Results and Images to the user.
type Message struct {
	Role    Role
	Text    string
	Images  []Image
	Calls   []Call
	Results []Result
}

// fill gives a message a text if it has nothing: providers refuse it then.
func (m *Message) fill() {
	if strings.TrimSpace(m.Text) == "" && len(m.Images)+len(m.Calls)+len(m.Results) == 0 {
		m.Text = "(nothing)"
	}
}

// Image is a picture.
type Image struct {
	MediaType string // image/png, image/jpeg, image/gif, image/webp
	Data      []byte
	// Detail is how closely the model looks, in the words of OpenAI's APIs ("low",
	// "high"), which alone have such a setting for each picture. Empty leaves it to
	// the provider.
	Detail string
}

// detailed adds the detail of a picture to what an API of OpenAI gets of it.
func (p *Image) detailed(o object) object {
	if p.Detail != "" {
		o["detail"] = p.Detail
	}
	return o
}

// url returns the picture as an address that contains it.
func (p *Image) url() string {
	return "data:" + p.MediaType + ";base64," + base64.StdEncoding.EncodeToString(p.Data)
}

// Tool is a tool that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of an object
}

// Call is a tool call of the model.
type Call struct {
	ID        string
	Name      string
	Arguments json.RawMessage // as the model wrote them if that is not an object, {} if it wrote none
	// Signature is a value that some providers need back with the call,
	// unchanged. Empty for other providers.
	Signature string
}

// Result answers a call.
type Result struct {
	CallID string
	Text   string
	Failed bool
	// Images belong to the result. Where the API takes only text in a result, they
	// follow in the user's message.
	Images []Image
}

// Stop is why a reply ended.
type Stop string

// The reasons. Any other reason of a provider becomes Done.
const (
	Done    Stop = "done"
	Length  Stop = "length"  // cut off at MaxTokens or at the model's own limit
	Refused Stop = "refused" // the model or a filter refused to answer
)

// Reply is the model's reply.
type Reply struct {
	Text     string
	Thinking string // as far as the provider shows it
	// JSON is the reply to a request with a schema: it matches. Nil if the reply
	// calls tools.
	JSON  json.RawMessage
	Calls []Call
	Stop  Stop
	Model string // the provider's name for it
	Usage Usage  // of all replies, if the model was asked again because of a schema
	Tries int    // requests that were sent for it, at least 1

	last string // text of its last message
}

// Usage is the number of tokens that a reply used, as reported by the provider.
// Nil means that it reported none.
type Usage struct {
	Input     *int64 // includes Cached
	Cached    *int64 // part of Input
	Output    *int64 // includes Reasoning
	Reasoning *int64 // part of Output
}

// Dialects returns the dialects that a client here speaks, the most common
// first. A plugin lists them in its Needs.
func Dialects() []model.Dialect {
	return []model.Dialect{model.DialectOpenAIChat, model.DialectAnthropic, model.DialectOpenAI, model.DialectGemini}
}
