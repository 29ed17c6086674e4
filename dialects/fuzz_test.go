package dialects

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/berth-eval/berth/plugins/dialect"
	answers "github.com/berth-eval/berth/plugins/model/answer"
)

// Every dialect reads whatever an agent asks and a provider answers: a request
// stays a JSON object after the changes of the gateway, and no amount of tokens is
// below zero.
func FuzzExchange(f *testing.F) {
	f.Add("/v1/chat/completions", []byte(`{"model":"m","messages":[],"stream":true}`), []byte("data: {\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n"))
	f.Fuzz(func(t *testing.T, path string, request, answer []byte) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		r.URL.Path = path
		for _, d := range All.Dialects {
			if c, ok := d.Call(r); ok {
				edited(t, d, c, request)
			}
			m := answers.NewMeter(d.Name())
			var events dialect.Events
			events.Write(answer, func(e dialect.Event) {
				d.Hide(e)
				m.Event(e)
			})
			whole := answers.NewMeter(d.Name())
			whole.Body(answer)
			for _, got := range []dialect.Reading{m.Read(), whole.Read()} {
				u := got.Usage
				if min(u.Input, u.Cached, u.CacheWrite, u.CacheHour, u.Output, u.Reasoning, got.Said) < 0 {
					t.Errorf("%s: %+v", d.Name(), got)
				}
			}
		}
	})
}

func edited(t *testing.T, d dialect.Dialect, c dialect.Call, request []byte) {
	o, err := dialect.ParseObject(request)
	if err != nil {
		return
	}
	if _, err = d.Facts(c, o); err != nil {
		return // the gateway refuses it
	}
	if _, refused := d.Restrict(c, o, []string{"a"}); refused != "" {
		return
	}
	if err = d.Edit(&c, o, dialect.Edit{Model: "other", AskUsage: true, Parameters: json.RawMessage(`{"temperature":0}`)}); err != nil {
		return
	}
	if b := o.Bytes(); !json.Valid(b) {
		t.Errorf("%s: %q became %q", d.Name(), request, b)
	}
}
