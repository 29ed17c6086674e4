// Package openai is the dialect of OpenAI's Responses API.
//
// It must not know sessions, budgets or scripts: it only reads and writes the
// wire format.
package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Dialect implements dialect.Dialect.
type Dialect struct{}

// Name implements dialect.Dialect.
func (Dialect) Name() model.Dialect { return model.DialectOpenAI }

// Base implements dialect.Dialect.
func (Dialect) Base() string { return "https://api.openai.com/v1" }

// Variables implements dialect.Dialect.
func (Dialect) Variables() dialect.Variables {
	return dialect.Variables{
		Keys:      []string{"OPENAI_API_KEY"},
		Addresses: []string{"OPENAI_BASE_URL", "OPENAI_API_BASE"},
	}
}

// Call implements dialect.Dialect.
func (Dialect) Call(r *http.Request) (dialect.Call, bool) {
	if r.Method != http.MethodPost {
		return dialect.Call{}, false
	}
	for _, c := range []struct {
		path string
		kind dialect.Kind
	}{
		{"/responses", dialect.Generate},
		{"/responses/compact", dialect.Generate},
		{"/responses/input_tokens", dialect.Count},
	} {
		if strings.HasSuffix(r.URL.Path, c.path) {
			return dialect.Call{Kind: c.kind, Path: c.path}, true
		}
	}
	return dialect.Call{}, false
}

// Token implements dialect.Dialect.
func (Dialect) Token(r *http.Request) string { return wire.Bearer(r) }

// Authorize implements dialect.Dialect.
func (Dialect) Authorize(r *http.Request, key string) { wire.SetBearer(r, key) }

// Facts implements dialect.Dialect.
func (Dialect) Facts(_ dialect.Call, body *dialect.Object) (dialect.Facts, error) {
	var f dialect.Facts
	body.Into("model", &f.Model)
	body.Into("stream", &f.Stream)
	body.Into("max_output_tokens", &f.MaxOutput)
	if name := "previous_response_id"; wire.Given(body.Get(name)) {
		f.Continues = name
	}
	var s wire.Restriction
	wire.Map(body.Get("input"), func(i json.RawMessage) json.RawMessage { return sealed(i, &s) })
	f.Media = s.Media.Media
	return f, nil
}

// Edit implements dialect.Dialect.
func (Dialect) Edit(c *dialect.Call, body *dialect.Object, e dialect.Edit) error {
	return wire.Edit(body, e, c.Path == "/responses")
}

// Fleeting implements dialect.Dialect.
func (Dialect) Fleeting() []string {
	return []string{"metadata", "client_metadata", "prompt_cache_key", "safety_identifier", "user"}
}

// Rates implements dialect.Dialect.
func (Dialect) Rates() map[string][]string {
	return map[string][]string{"service_tier": {"auto", "default", "flex"}}
}

// Hide implements dialect.Dialect.
func (Dialect) Hide(dialect.Event) bool { return false }

// KeepAlive implements dialect.Dialect.
func (Dialect) KeepAlive() []byte { return []byte(": waiting\n\n") }

// Late implements dialect.Dialect.
func (Dialect) Late(f dialect.Failure) []byte {
	return wire.SSE("error", object{"type": "error", "code": failures[f.Kind].code, "message": f.Message, "param": nil, "sequence_number": 0})
}

// failures are the types and codes of the provider's own errors.
var failures = map[dialect.FailureKind]struct{ word, code string }{
	dialect.BadToken:    {"invalid_request_error", "invalid_api_key"},
	dialect.Over:        {"invalid_request_error", "session_over"},
	dialect.BadRequest:  {"invalid_request_error", "invalid_request"},
	dialect.NotServed:   {"invalid_request_error", "not_found"},
	dialect.Spent:       {"insufficient_quota", "insufficient_quota"},
	dialect.Overloaded:  {"requests", "rate_limit_exceeded"},
	dialect.Unreachable: {"server_error", "server_error"},
}

// Failure implements dialect.Dialect.
func (Dialect) Failure(f dialect.Failure) dialect.Response {
	w := failures[f.Kind]
	return wire.Failed(f, object{"error": object{"message": f.Message, "type": w.word, "param": nil, "code": w.code}})
}

// Smallest implements dialect.Dialect.
func (Dialect) Smallest(name string) (dialect.Call, []byte) {
	return dialect.Call{Kind: dialect.Generate, Path: "/responses"}, dialect.JSON(object{"model": name, "max_output_tokens": 16, "stream": true, "store": false, "input": "Say yes."})
}
