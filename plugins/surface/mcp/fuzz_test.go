package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Whatever an agent sends to the server of its surface, there is an answer, and an
// action gets arguments that are JSON.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"click","arguments":{"bid":"1"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p := aPage()
		s := New(p)
		defer s.Close()
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		s.answer(w, r)
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		for _, c := range p.calls {
			if len(c.Arguments) > 0 && !json.Valid(c.Arguments) {
				t.Errorf("%+v", c)
			}
		}
	})
}
