// Package openai is the dialect of OpenAI's Responses API.
//
// It must not know a session, a budget or a script: it reads and writes the
// wire format, and nothing else.
package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berth-eval/berth/core/gateway/wire"
	"github.com/berth-eval/berth/plugins/model"
)

// Dialect implements wire.Dialect.
type Dialect struct{}

// Name implements wire.Dialect.
func (Dialect) Name() model.Dialect { return model.DialectOpenAI }

// Base implements wire.Dialect.
func (Dialect) Base() string { return "https://api.openai.com/v1" }

// Call implements wire.Dialect.
func (Dialect) Call(r *http.Request) (wire.Call, bool) {
	if r.Method != http.MethodPost {
		return wire.Call{}, false
	}
	for _, c := range []struct {
		path string
		kind wire.Kind
	}{
		{"/responses", wire.Generate},
		{"/responses/compact", wire.Generate},
		{"/responses/input_tokens", wire.Count},
	} {
		if strings.HasSuffix(r.URL.Path, c.path) {
			return wire.Call{Kind: c.kind, Path: c.path}, true
		}
	}
	return wire.Call{}, false
}

// Token implements wire.Dialect.
func (Dialect) Token(r *http.Request) string { return wire.Bearer(r) }

// Authorize implements wire.Dialect.
func (Dialect) Authorize(r *http.Request, key string) { wire.SetBearer(r, key) }

// Facts implements wire.Dialect.
func (Dialect) Facts(_ wire.Call, body *wire.Object) (wire.Facts, error) {
	var f wire.Facts
	body.Into("model", &f.Model)
	body.Into("stream", &f.Stream)
	body.Into("max_output_tokens", &f.MaxOutput)
	if name := "previous_response_id"; given(body.Get(name)) {
		f.Continues = name
	}
	f.Inline, f.Images = wire.Inline(body.Get("input"))
	return f, nil
}

func given(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }

// Edit implements wire.Dialect.
func (Dialect) Edit(c *wire.Call, body *wire.Object, e wire.Edit) error {
	if e.Model != "" {
		body.SetString("model", e.Model)
	}
	if len(e.Parameters) > 0 && c.Path == "/responses" {
		return body.Merge(e.Parameters)
	}
	return nil
}

// Fleeting implements wire.Dialect.
func (Dialect) Fleeting() []string {
	return []string{"metadata", "client_metadata", "prompt_cache_key", "safety_identifier", "user"}
}

// Rates implements wire.Dialect.
func (Dialect) Rates() map[string][]string {
	return map[string][]string{"service_tier": {"auto", "default", "flex"}}
}

// Hide implements wire.Dialect.
func (Dialect) Hide(wire.Event) bool { return false }

// KeepAlive implements wire.Dialect.
func (Dialect) KeepAlive() []byte { return []byte(": waiting\n\n") }

// Failure implements wire.Dialect.
func (Dialect) Failure(f wire.Failure) wire.Response { return Failure(f) }

// Late implements wire.Dialect.
func (Dialect) Late(f wire.Failure) []byte {
	return wire.SSE("error", object{"type": "error", "code": failures[f.Kind].code, "message": f.Message, "param": nil, "sequence_number": 0})
}

// failures are the statuses, types and codes of the provider's own errors.
var failures = map[wire.FailureKind]struct {
	status     int
	word, code string
}{
	wire.BadToken:    {http.StatusUnauthorized, "invalid_request_error", "invalid_api_key"},
	wire.Over:        {http.StatusForbidden, "invalid_request_error", "session_over"},
	wire.BadRequest:  {http.StatusBadRequest, "invalid_request_error", "invalid_request"},
	wire.NotServed:   {http.StatusNotFound, "invalid_request_error", "not_found"},
	wire.Spent:       {http.StatusForbidden, "insufficient_quota", "insufficient_quota"},
	wire.Overloaded:  {http.StatusTooManyRequests, "requests", "rate_limit_exceeded"},
	wire.Unreachable: {http.StatusBadGateway, "server_error", "server_error"},
}

// Failure is an answer of the gateway in the words that the provider's APIs
// share.
func Failure(f wire.Failure) wire.Response {
	w := failures[f.Kind]
	return wire.Answer(w.status, f.Retry, object{
		"error": object{"message": f.Message, "type": w.word, "param": nil, "code": w.code},
	}, f.Kind != wire.Overloaded && f.Kind != wire.Unreachable)
}

// Smallest implements wire.Dialect.
func (Dialect) Smallest(name string) (wire.Call, []byte) {
	return wire.Call{Kind: wire.Generate, Path: "/responses"}, wire.JSON(object{"model": name, "max_output_tokens": 16, "stream": true, "store": false, "input": "Say yes."})
}

// Meter implements wire.Dialect.
func (Dialect) Meter() wire.Meter { return &meter{} }

type meter struct{ r wire.Reading }

// take reads the provider's record.
func (m *meter) take(raw json.RawMessage) bool {
	var u *struct {
		Input   *wire.Tokens `json:"input_tokens"`
		Output  *wire.Tokens `json:"output_tokens"`
		Details struct {
			Cached wire.Tokens `json:"cached_tokens"`
			Write  wire.Tokens `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
		OutputDetails struct {
			Reasoning wire.Tokens `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil || u == nil || u.Input == nil || u.Output == nil {
		return false
	}
	m.r.Usage = wire.Usage{
		Input: int64(*u.Input), Cached: int64(u.Details.Cached), CacheWrite: int64(u.Details.Write), Output: int64(*u.Output),
		Reasoning: int64(u.OutputDetails.Reasoning),
	}
	m.r.Raw = append(json.RawMessage{}, raw...)
	return true
}

// Event implements wire.Meter.
func (m *meter) Event(e wire.Event) {
	var d struct {
		Type, Message string
		Delta         json.RawMessage
		Response      struct {
			Usage json.RawMessage
			Error *struct{ Code, Message string }
		}
	}
	if json.Unmarshal(e.Data, &d) != nil {
		m.r.Invalid = m.r.Invalid || wire.Garbage(e.Data)
		return
	}
	switch d.Type {
	case "response.completed", "response.incomplete":
		m.r.Complete, m.r.Ended = m.take(d.Response.Usage), true
	case "response.failed":
		m.r.Complete, m.r.Ended = m.take(d.Response.Usage), true
		if d.Response.Error != nil {
			m.r.Error = d.Response.Error.Code + ": " + d.Response.Error.Message
		}
	case "error":
		m.r.Error = d.Message
	default:
		var s string
		if strings.HasSuffix(d.Type, ".delta") && json.Unmarshal(d.Delta, &s) == nil {
			m.r.Said += int64(len(s))
		}
	}
}

// Body implements wire.Meter.
func (m *meter) Body(b []byte) {
	var d struct{ Output, Usage, Error json.RawMessage }
	if json.Unmarshal(b, &d) == nil {
		m.r.Complete, m.r.Ended = m.take(d.Usage), d.Output != nil || d.Usage != nil
		m.r.Error = wire.Problem(d.Error)
	}
}

// Read implements wire.Meter.
func (m *meter) Read() wire.Reading { return m.r }
