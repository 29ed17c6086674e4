package chat

import (
	"encoding/json"
	"testing"
)

// Whatever a model replies, no amount of tokens is below zero, and an answer that
// has to match a schema is a JSON object.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"{}"}],"usage":{"input_tokens":1}}`))
	s, err := compile(json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for name := range spoken {
			r, err := read(name, body)
			if err != nil {
				continue
			}
			for _, n := range []*int64{r.Usage.Input, r.Usage.Cached, r.Usage.Output} {
				if n != nil && *n < 0 {
					t.Errorf("%s: %+v", name, r.Usage)
				}
			}
			var o struct{ A *json.Number }
			if v, err := s.read(&r, &Request{}); err == nil && (json.Unmarshal(v, &o) != nil || o.A == nil) {
				t.Errorf("%s: %s matches the schema", name, v)
			}
		}
	})
}
