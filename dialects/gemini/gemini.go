// Package gemini is the dialect of Google's Gemini API, generateContent.
//
// It must not know sessions, budgets or scripts: it only reads and writes the
// wire format.
package gemini

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
func (Dialect) Name() model.Dialect { return model.DialectGemini }

// Base implements dialect.Dialect.
func (Dialect) Base() string { return "https://generativelanguage.googleapis.com" }

// methods are the methods of a model, after a colon in the path.
var methods = map[string]dialect.Call{
	"generateContent":       {Kind: dialect.Generate},
	"streamGenerateContent": {Kind: dialect.Generate, Stream: true},
	"countTokens":           {Kind: dialect.Count},
}

// Variables implements dialect.Dialect.
func (Dialect) Variables() dialect.Variables {
	return dialect.Variables{
		Keys:      []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"},
		Addresses: []string{"GOOGLE_GEMINI_BASE_URL"},
	}
}

// Call implements dialect.Dialect.
func (Dialect) Call(r *http.Request) (dialect.Call, bool) {
	path := r.URL.Path
	if r.Method == http.MethodGet && strings.HasSuffix(path, "/v1beta/models") {
		return dialect.Call{Kind: dialect.List}, true
	}
	i := strings.LastIndex(path, "/models/")
	if r.Method != http.MethodPost || i < 0 {
		return dialect.Call{}, false
	}
	name, verb, _ := strings.Cut(path[i+len("/models/"):], ":")
	c, ok := methods[verb]
	if !ok || name == "" {
		return dialect.Call{}, false
	}
	version := "v1beta"
	if head := path[:i]; strings.HasSuffix(head, "/v1") || strings.HasSuffix(head, "/v1alpha") {
		version = head[strings.LastIndexByte(head, '/')+1:]
	}
	c.Array = c.Stream && r.URL.Query().Get("alt") != "sse"
	c.Model, c.Path = name, "/"+version+"/models/"+name+":"+verb
	return c, true
}

// Token implements dialect.Dialect.
func (Dialect) Token(r *http.Request) string {
	if k := r.Header.Get("X-Goog-Api-Key"); k != "" {
		return k
	}
	if k := r.URL.Query().Get("key"); k != "" {
		return k
	}
	return wire.Bearer(r)
}

// Authorize implements dialect.Dialect.
func (Dialect) Authorize(r *http.Request, key string) {
	r.Header.Del("Authorization")
	r.Header.Del("X-Goog-Api-Key")
	if q := r.URL.Query(); q.Has("key") {
		q.Del("key")
		r.URL.RawQuery = q.Encode()
	}
	if key != "" {
		r.Header.Set("X-Goog-Api-Key", key)
	}
}

// Facts implements dialect.Dialect.
func (Dialect) Facts(c dialect.Call, body *dialect.Object) (dialect.Facts, error) {
	f := dialect.Facts{Model: c.Model, Stream: c.Stream}
	audio := false
	for _, name := range []string{"generationConfig", "generation_config"} {
		var g struct {
			Max       dialect.Tokens `json:"maxOutputTokens"`
			MaxSnake  dialect.Tokens `json:"max_output_tokens"`
			Many      dialect.Tokens `json:"candidateCount"`
			ManySnake dialect.Tokens `json:"candidate_count"`
		}
		audio = audio || bytes.Contains(body.Get(name), []byte(`"AUDIO"`)) // in responseModalities
		body.Into(name, &g)
		f.MaxOutput, f.Answers = max(f.MaxOutput, g.Max, g.MaxSnake), max(f.Answers, g.Many, g.ManySnake)
	}
	var s wire.Restriction
	contents(body, &s)
	f.Media = s.Media.Media
	f.Media.Audio = f.Media.Audio || audio
	return f, nil
}

// Edit implements dialect.Dialect.
func (Dialect) Edit(c *dialect.Call, body *dialect.Object, e dialect.Edit) error {
	if e.Model != "" && e.Model != c.Model {
		c.Path = strings.Replace(c.Path, "/models/"+c.Model+":", "/models/"+e.Model+":", 1)
		c.Model = e.Model
	}
	if len(e.Parameters) > 0 && c.Kind == dialect.Generate {
		return body.Merge(e.Parameters)
	}
	return nil
}

// Fleeting implements dialect.Dialect.
func (Dialect) Fleeting() []string { return nil }

// Rates implements dialect.Dialect.
func (Dialect) Rates() map[string][]string {
	usual := []string{"standard", "flex", "SERVICE_TIER_STANDARD", "SERVICE_TIER_FLEX"}
	return map[string][]string{"serviceTier": usual, "service_tier": usual}
}

// Hide implements dialect.Dialect.
func (Dialect) Hide(dialect.Event) bool { return false }

// KeepAlive implements dialect.Dialect. The provider's libraries read comments
// as data, and skip blank lines.
func (Dialect) KeepAlive() []byte { return []byte("\r\n\r\n") }

// failures are the statuses of the provider's own errors.
var failures = map[dialect.FailureKind]string{
	dialect.BadToken: "UNAUTHENTICATED", dialect.Over: "PERMISSION_DENIED", dialect.BadRequest: "INVALID_ARGUMENT", dialect.NotServed: "NOT_FOUND",
	dialect.Spent: "PERMISSION_DENIED", dialect.Overloaded: "RESOURCE_EXHAUSTED", dialect.Unreachable: "UNAVAILABLE",
}

// Failure implements dialect.Dialect.
func (Dialect) Failure(f dialect.Failure) dialect.Response {
	return wire.Failed(f, object{"error": object{"code": wire.Status(f), "message": f.Message, "status": failures[f.Kind]}})
}

// Late implements dialect.Dialect.
func (d Dialect) Late(f dialect.Failure) []byte {
	return append(append([]byte("data: "), d.Failure(f).Body...), '\n', '\n')
}

// Smallest implements dialect.Dialect.
func (Dialect) Smallest(name string) (dialect.Call, []byte) {
	return dialect.Call{Kind: dialect.Generate, Model: name, Stream: true, Path: "/v1beta/models/" + name + ":streamGenerateContent?alt=sse"}, dialect.JSON(object{
		"contents":         []any{object{"role": "user", "parts": []any{object{"text": "Say yes."}}}},
		"generationConfig": object{"maxOutputTokens": 16},
	})
}
