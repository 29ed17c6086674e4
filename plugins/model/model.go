// Package model defines how a plugin reaches a model: an endpoint of the core's
// gateway, a token that is valid for one turn, and the parameters of requests.
//
// It must not know any provider's own library.
package model

import (
	"encoding/json"

	"github.com/berth-eval/berth/plugins/internal/wire"
)

// Dialect is the wire format that an endpoint speaks.
type Dialect string

// The dialects. A plugin lists in Check those that it can speak.
const (
	DialectAnthropic  Dialect = "anthropic"   // Messages
	DialectOpenAI     Dialect = "openai"      // Responses
	DialectOpenAIChat Dialect = "openai-chat" // Chat Completions
	DialectGemini     Dialect = "gemini"      // generateContent
	DialectScript     Dialect = "script"      // replies from a file; answers in every dialect
)

// Endpoint is one model that a plugin may use. It does not contain the
// provider's key, which only the gateway has.
type Endpoint struct {
	Host       string          `json:"host,omitempty"`       // base address on the host: "unix:/path" or "http://127.0.0.1:port"
	HostURL    string          `json:"host_url,omitempty"`   // the same for clients that cannot use a socket: "http://127.0.0.1:port"; may be empty
	Inside     string          `json:"inside,omitempty"`     // base URL inside the sandbox: "http://127.0.0.1:port"; empty if there is none
	Token      string          `json:"token,omitempty"`      // valid only in this session and until the turn ends
	Dialect    Dialect         `json:"dialect"`              //
	Name       string          `json:"name"`                 // the provider's name for the model
	Parameters json.RawMessage `json:"parameters,omitempty"` // JSON object that the experiment sets in each request
}

// Info is what Check gets to know of a model before any endpoint exists.
type Info struct {
	Dialect Dialect `json:"dialect"`
	Name    string  `json:"name"`
}

// Valid returns an error if the endpoint has no dialect.
func (e Endpoint) Valid() error { return Info{Dialect: e.Dialect, Name: e.Name}.Valid() }

// Valid returns an error if the model has no dialect.
func (i Info) Valid() error {
	if i.Dialect == "" {
		return wire.Invalid("model %q has no dialect", i.Name)
	}
	return nil
}
