// Package model says how a plugin reaches a model: an endpoint of the core's
// gateway, a token that lives as long as the turn, and what may be asked.
//
// It must not know any provider's own library.
package model

import "encoding/json"

// Dialect is the wire format that an endpoint speaks.
type Dialect string

// The dialects. A plugin says in Check which of them it can speak.
const (
	DialectAnthropic  Dialect = "anthropic"   // Messages
	DialectOpenAI     Dialect = "openai"      // Responses
	DialectOpenAIChat Dialect = "openai-chat" // Chat Completions
	DialectGemini     Dialect = "gemini"      // generateContent
	DialectScript     Dialect = "script"      // replies from a file; answers in every dialect
)

// Endpoint is one model as a plugin may use it. The provider's key is not in
// it: the gateway holds that.
type Endpoint struct {
	Host       string          `json:"host,omitempty"`       // base address on the host: "unix:/path" or "http://127.0.0.1:port"
	HostURL    string          `json:"host_url,omitempty"`   // the same for clients that cannot use a socket: "http://127.0.0.1:port"; may be empty
	Inside     string          `json:"inside,omitempty"`     // base URL inside the sandbox: "http://127.0.0.1:port"; empty: not offered there
	Token      string          `json:"token,omitempty"`      // of this session only; dies with the turn
	Dialect    Dialect         `json:"dialect"`              //
	Name       string          `json:"name"`                 // as the provider knows the model
	Parameters json.RawMessage `json:"parameters,omitempty"` // JSON object the experiment wants in each request
}

// Info is what Check is told of a model before any endpoint exists.
type Info struct {
	Dialect Dialect `json:"dialect"`
	Name    string  `json:"name"`
}
