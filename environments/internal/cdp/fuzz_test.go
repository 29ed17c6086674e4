package cdp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// Whatever a browser sends, the connection ends with it, and nobody waits for ever.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{"a":1}}` + "\x00" + `{"method":"Page.loadEventFired","params":{}}` + "\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, w := io.Pipe()
		sent := make(chan struct{})
		c := New(r, writer(func(b []byte) {
			if json.Valid(bytes.TrimRight(b, "\x00")) {
				close(sent)
			}
		}), func(e Event) {
			if len(e.Params) > 0 && !json.Valid(e.Params) {
				t.Errorf("event with %q", e.Params)
			}
		})
		result := c.Begin(context.Background(), "", "Page.enable", nil)
		<-sent
		_, _ = w.Write(in) // it stops reading where a message is broken
		_ = w.Close()
		var out map[string]json.RawMessage
		err := result(&out)
		if err == nil && out == nil && !bytes.Contains(in, []byte("null")) {
			t.Error("no error and no result")
		}
		<-c.Done()
		if err = c.Begin(context.Background(), "", "Page.enable", nil)(nil); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }
