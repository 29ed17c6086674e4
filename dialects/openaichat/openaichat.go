// Package openaichat is the dialect of OpenAI's Chat Completions API, which
// many other servers also speak.
//
// It must not know sessions, budgets or scripts: it only reads and writes the
// wire format.
package openaichat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/dialects/openai"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Dialect implements dialect.Dialect.
type Dialect struct{}

// Name implements dialect.Dialect.
func (Dialect) Name() model.Dialect { return model.DialectOpenAIChat }

// Base implements dialect.Dialect.
func (Dialect) Base() string { return "https://api.openai.com/v1" }

// Variables implements dialect.Dialect.
func (Dialect) Variables() dialect.Variables { return openai.Dialect{}.Variables() }

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

// Token implements dialect.Dialect.
func (Dialect) Token(r *http.Request) string { return wire.Bearer(r) }

// Authorize implements dialect.Dialect.
func (Dialect) Authorize(r *http.Request, key string) { wire.SetBearer(r, key) }

// Facts implements dialect.Dialect.
func (Dialect) Facts(_ dialect.Call, body *dialect.Object) (dialect.Facts, error) {
	var f dialect.Facts
	body.Into("model", &f.Model)
	body.Into("stream", &f.Stream)
	f.Silent = !asksUsage(body)
	body.Into("max_tokens", &f.MaxOutput)
	body.Into("max_completion_tokens", &f.MaxOutput)
	body.Into("n", &f.Answers)
	f.Inline, f.Images = wire.Inline(body.Get("messages"))
	return f, nil
}

// Edit implements dialect.Dialect.
func (Dialect) Edit(_ *dialect.Call, body *dialect.Object, e dialect.Edit) error {
	if e.Model != "" {
		body.SetString("model", e.Model)
	}
	if len(e.Parameters) > 0 {
		if err := body.Merge(e.Parameters); err != nil {
			return err
		}
	}
	if e.AskUsage {
		return body.Merge(json.RawMessage(`{"stream_options":{"include_usage":true}}`))
	}
	return nil
}

func asksUsage(body *dialect.Object) bool {
	var o struct {
		Include bool `json:"include_usage"`
	}
	body.Into("stream_options", &o)
	return o.Include
}

// Fleeting implements dialect.Dialect.
func (Dialect) Fleeting() []string {
	return []string{"metadata", "prompt_cache_key", "safety_identifier", "user"}
}

// Rates implements dialect.Dialect.
func (Dialect) Rates() map[string][]string {
	return map[string][]string{"service_tier": {"auto", "default", "flex"}}
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

// KeepAlive implements dialect.Dialect.
func (Dialect) KeepAlive() []byte { return []byte(": waiting\n\n") }

// Failure implements dialect.Dialect.
func (Dialect) Failure(f dialect.Failure) dialect.Response { return openai.Failure(f) }

// Late implements dialect.Dialect.
func (Dialect) Late(f dialect.Failure) []byte {
	return append(append([]byte("data: "), openai.Failure(f).Body...), '\n', '\n')
}

// Smallest implements dialect.Dialect.
func (Dialect) Smallest(name string) (dialect.Call, []byte) {
	return dialect.Call{Kind: dialect.Generate, Path: "/chat/completions"}, dialect.JSON(map[string]any{
		"model": name, "stream": true, "messages": []any{map[string]string{"role": "user", "content": "Say yes."}},
	})
}

// Meter implements dialect.Dialect.
func (Dialect) Meter() dialect.Meter { return &meter{} }

type meter struct {
	r   dialect.Reading
	odd bool // the last record of usage could not be read
}

// take reads the provider's record of usage. Some servers send it with each
// event.
func (m *meter) take(raw json.RawMessage) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return
	}
	var u struct {
		Input   *dialect.Tokens `json:"prompt_tokens"`
		Output  *dialect.Tokens `json:"completion_tokens"`
		Details struct {
			Cached dialect.Tokens `json:"cached_tokens"`
			Write  dialect.Tokens `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
		OutputDetails struct {
			Reasoning dialect.Tokens `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
		Hit dialect.Tokens `json:"prompt_cache_hit_tokens"` // the name on some servers
	}
	if m.odd = json.Unmarshal(raw, &u) != nil || u.Input == nil || u.Output == nil; m.odd {
		return
	}
	m.r.Usage = dialect.Usage{
		Input: int64(*u.Input), Cached: int64(max(u.Details.Cached, u.Hit)), CacheWrite: int64(u.Details.Write), Output: int64(*u.Output),
		Reasoning: int64(u.OutputDetails.Reasoning),
	}
	m.r.Raw = append(json.RawMessage{}, raw...)
}

// Event implements dialect.Meter.
func (m *meter) Event(e dialect.Event) {
	if bytes.Equal(e.Data, []byte("[DONE]")) {
		m.r.Ended = true
		return
	}
	var d struct {
		ID      any
		Choices []struct {
			Finish *string `json:"finish_reason"`
			Delta  struct {
				Content          string
				ReasoningContent string `json:"reasoning_content"`
				Reasoning        string
				ToolCalls        []struct {
					Function struct{ Arguments string }
				} `json:"tool_calls"`
			}
		}
		Usage json.RawMessage
		Error *struct{ Message string }
	}
	if json.Unmarshal(e.Data, &d) != nil {
		m.r.Invalid = m.r.Invalid || wire.Garbage(e.Data)
		return
	}
	m.r.ID = cmp.Or(m.r.ID, dialect.Word(d.ID))
	m.take(d.Usage)
	for _, c := range d.Choices {
		m.r.Ended = m.r.Ended || c.Finish != nil // some servers send no other end marker
		m.r.Said += int64(len(c.Delta.Content) + len(c.Delta.ReasoningContent) + len(c.Delta.Reasoning))
		for _, t := range c.Delta.ToolCalls {
			m.r.Said += int64(len(t.Function.Arguments))
		}
	}
	if d.Error != nil {
		m.r.Error = d.Error.Message
	}
}

// Body implements dialect.Meter.
func (m *meter) Body(b []byte) {
	var d struct {
		ID                    any
		Choices, Usage, Error json.RawMessage
	}
	if json.Unmarshal(b, &d) == nil {
		m.r.ID = dialect.Word(d.ID)
		m.take(d.Usage)
		m.r.Ended = d.Choices != nil || d.Usage != nil
		m.r.Error = dialect.Problem(d.Error)
		m.r.Said = int64(len(d.Choices))
	}
}

// Read implements dialect.Meter.
func (m *meter) Read() dialect.Reading {
	r := m.r
	r.Complete = r.Ended && r.Raw != nil && !m.odd
	return r
}
