package cdp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// browser answers each message with what do returns; nil: it does not answer.
func browser(t *testing.T, events func(Event), do func(message) []string) *Conn {
	t.Helper()
	in, out := io.Pipe()
	answers, answer := io.Pipe()
	t.Cleanup(func() { _, _ = in.Close(), answer.Close() })
	go func() {
		for r := bufio.NewReader(in); ; {
			text, err := r.ReadString(0)
			var m message
			if err != nil || json.Unmarshal([]byte(strings.TrimSuffix(text, "\x00")), &m) != nil {
				return
			}
			lines := do(m)
			if lines == nil && m.Method == "end" {
				_ = answer.Close()
				return
			}
			for _, line := range lines {
				fmt.Fprintf(answer, "%s\x00", line)
			}
		}
	}()
	return New(answers, out, events)
}

func TestCalls(t *testing.T) {
	t.Parallel()
	happened := make(chan Event, 1)
	c := browser(t, func(e Event) { happened <- e }, func(m message) []string {
		switch m.Method {
		case "echo":
			return []string{`{"method":"seen","sessionId":"s","params":{"a":1}}`, fmt.Sprintf(`{"id":%d,"result":%s}`, m.ID, m.Params)}
		case "refuse":
			return []string{fmt.Sprintf(`{"id":%d,"error":{"code":-32000,"message":"no"}}`, m.ID)}
		case "late":
			return []string{`{"id":9999,"result":{}}`} // to nobody
		}
		return nil
	})
	var got struct{ X int }
	if err := c.Do(t.Context(), "s", "echo", map[string]any{"x": 7}, &got); err != nil || got.X != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
	if e := <-happened; e.Method != "seen" || e.Session != "s" || string(e.Params) != `{"a":1}` {
		t.Errorf("event %+v", e)
	}
	refused, ok := errors.AsType[*Error](c.Do(t.Context(), "", "refuse", nil, nil))
	if !ok || refused.Error() != "refuse: no" {
		t.Errorf("refused: %v", refused)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Do(ctx, "", "late", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call without an answer: %v", err)
	}
	if err := c.Do(t.Context(), "", "end", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("at the end: %v", err)
	}
	<-c.Done()
	if err := c.Do(t.Context(), "", "echo", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if len(c.calls) != 0 {
		t.Errorf("%d calls are kept", len(c.calls))
	}
}

func TestABrowserThatTalksNonsenseHasEnded(t *testing.T) {
	t.Parallel()
	c := New(strings.NewReader("<html>\x00"), io.Discard, func(Event) {})
	if err := c.Do(t.Context(), "", "any", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}
