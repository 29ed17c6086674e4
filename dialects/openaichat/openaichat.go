// Package openaichat is the dialect of OpenAI's Chat Completions API, which
// many other servers also speak.
//
// It must not know sessions, budgets or scripts: it only reads and writes the
// wire format.
package openaichat

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/dialects/openai"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Dialect implements dialect.Dialect. What it does not say itself is as in the
// Responses API.
type Dialect struct{ openai.Dialect }

// Name implements dialect.Dialect.
func (Dialect) Name() model.Dialect { return model.DialectOpenAIChat }

// Call implements dialect.Dialect.
func (Dialect) Call(r *http.Request) (dialect.Call, bool) {
	switch path := r.URL.Path; {
	case r.Method == http.MethodGet && strings.HasSuffix(path, "/models"):
		return dialect.Call{Kind: dialect.List}, true
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/chat/completions"):
		return dialect.Call{Kind: dialect.Generate, Path: "/chat/completions"}, true
	default:
		return dialect.Call{}, false
	}
}

// Facts implements dialect.Dialect.
func (Dialect) Facts(_ dialect.Call, body *dialect.Object) (dialect.Facts, error) {
	var f dialect.Facts
	body.Into("model", &f.Model)
	body.Into("stream", &f.Stream)
	f.Silent = !asksUsage(body)
	body.Into("max_tokens", &f.MaxOutput)
	body.Into("max_completion_tokens", &f.MaxOutput)
	body.Into("n", &f.Answers)
	f.Predicted = int64(len(body.Get("prediction")))
	var s wire.Restriction
	contents(body, &s)
	f.Media = s.Media.Media
	f.Media.Audio = f.Media.Audio || wire.Given(body.Get("audio")) || bytes.Contains(body.Get("modalities"), []byte(`"audio"`))
	return f, nil
}

// Edit implements dialect.Dialect.
func (Dialect) Edit(_ *dialect.Call, body *dialect.Object, e dialect.Edit) error {
	if err := wire.Edit(body, e, true); err != nil || !e.AskUsage {
		return err
	}
	return body.Merge(json.RawMessage(`{"stream_options":{"include_usage":true}}`))
}

func asksUsage(body *dialect.Object) bool {
	var o struct {
		Include bool `json:"include_usage"`
	}
	body.Into("stream_options", &o)
	return o.Include
}

// Hide implements dialect.Dialect: a chunk with usage and without choices
// exists only because usage was requested.
func (Dialect) Hide(e dialect.Event) bool {
	var d struct {
		Choices []json.RawMessage
		Usage   json.RawMessage
	}
	return json.Unmarshal(e.Data, &d) == nil && d.Choices != nil && len(d.Choices) == 0 && len(d.Usage) > 0 &&
		!bytes.Equal(d.Usage, []byte("null"))
}

// Late implements dialect.Dialect.
func (d Dialect) Late(f dialect.Failure) []byte {
	return append(append([]byte("data: "), d.Failure(f).Body...), '\n', '\n')
}

// Smallest implements dialect.Dialect.
func (Dialect) Smallest(name string) (dialect.Call, []byte) {
	return dialect.Call{Kind: dialect.Generate, Path: "/chat/completions"}, dialect.JSON(map[string]any{
		"model": name, "stream": true, "messages": []any{map[string]string{"role": "user", "content": "Say yes."}},
	})
}
