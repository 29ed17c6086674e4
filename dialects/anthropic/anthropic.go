// Package anthropic is the dialect of Anthropic's Messages API.
//
// It must not know sessions, budgets or scripts: it only reads and writes the
// wire format.
package anthropic

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Dialect implements dialect.Dialect.
type Dialect struct{}

// Name implements dialect.Dialect.
func (Dialect) Name() model.Dialect { return model.DialectAnthropic }

// Base implements dialect.Dialect.
func (Dialect) Base() string { return "https://api.anthropic.com" }

// Variables implements dialect.Dialect.
func (Dialect) Variables() dialect.Variables {
	return dialect.Variables{
		Keys:      []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"},
		Addresses: []string{"ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"},
	}
}

// Call implements dialect.Dialect.
func (Dialect) Call(r *http.Request) (dialect.Call, bool) {
	path := r.URL.Path
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(path, "/models") && r.Header.Get("Anthropic-Version") != "":
		return dialect.Call{Kind: dialect.List}, true
	case r.Method != http.MethodPost:
		return dialect.Call{}, false
	case strings.HasSuffix(path, "/messages"):
		return dialect.Call{Kind: dialect.Generate, Path: "/v1/messages"}, true
	case strings.HasSuffix(path, "/messages/count_tokens"):
		return dialect.Call{Kind: dialect.Count, Path: "/v1/messages/count_tokens"}, true
	default:
		return dialect.Call{}, false
	}
}

// Token implements dialect.Dialect.
func (Dialect) Token(r *http.Request) string {
	if k := r.Header.Get("X-Api-Key"); k != "" {
		return k
	}
	return wire.Bearer(r)
}

// Authorize implements dialect.Dialect.
func (Dialect) Authorize(r *http.Request, key string) {
	r.Header.Del("Authorization")
	r.Header.Del("X-Api-Key")
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	if r.Header.Get("Anthropic-Version") == "" {
		r.Header.Set("Anthropic-Version", "2023-06-01")
	}
}

// Facts implements dialect.Dialect.
func (Dialect) Facts(_ dialect.Call, body *dialect.Object) (dialect.Facts, error) {
	var f dialect.Facts
	body.Into("model", &f.Model)
	body.Into("stream", &f.Stream)
	body.Into("max_tokens", &f.MaxOutput)
	var s wire.Restriction
	contents(body, &s)
	f.Media = s.Media.Media
	f.CacheHour = bytes.Contains(body.Bytes(), []byte(`"1h"`)) // the ttl of a cache_control
	return f, nil
}

// Edit implements dialect.Dialect.
func (Dialect) Edit(c *dialect.Call, body *dialect.Object, e dialect.Edit) error {
	return wire.Edit(body, e, c.Kind == dialect.Generate)
}

// Fleeting implements dialect.Dialect.
func (Dialect) Fleeting() []string { return []string{"metadata"} }

// Rates implements dialect.Dialect.
func (Dialect) Rates() map[string][]string {
	return map[string][]string{"service_tier": {"auto", "standard_only"}, "speed": {"standard"}, "inference_geo": {"global"}}
}

// Hide implements dialect.Dialect.
func (Dialect) Hide(dialect.Event) bool { return false }

// KeepAlive implements dialect.Dialect.
func (Dialect) KeepAlive() []byte { return wire.SSE("ping", map[string]string{"type": "ping"}) }

// failures are the types of the provider's own errors.
var failures = map[dialect.FailureKind]string{
	dialect.BadToken: "authentication_error", dialect.Over: "permission_error", dialect.BadRequest: "invalid_request_error",
	dialect.NotServed: "not_found_error", dialect.Spent: "billing_error", dialect.Overloaded: "rate_limit_error", dialect.Unreachable: "api_error",
}

func problem(f dialect.Failure) map[string]any {
	return map[string]any{
		"type": "error", "error": map[string]string{"type": failures[f.Kind], "message": f.Message}, "request_id": nil,
	}
}

// Failure implements dialect.Dialect.
func (Dialect) Failure(f dialect.Failure) dialect.Response { return wire.Failed(f, problem(f)) }

// Late implements dialect.Dialect.
func (Dialect) Late(f dialect.Failure) []byte { return wire.SSE("error", problem(f)) }

// Smallest implements dialect.Dialect.
func (Dialect) Smallest(name string) (dialect.Call, []byte) {
	return dialect.Call{Kind: dialect.Generate, Path: "/v1/messages"}, dialect.JSON(map[string]any{
		"model": name, "max_tokens": 16, "stream": true, "messages": []any{map[string]string{"role": "user", "content": "Say yes."}},
	})
}
