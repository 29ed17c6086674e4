package control_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
)

// Clients that say nothing, too much or nonsense, or go away, keep nobody out for
// long, and change nothing.
func TestHostileClients(t *testing.T) {
	t.Parallel()
	g := start(t, 4)
	g.until(t, "two begin", running(2))
	dial := func() net.Conn {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "unix", g.client.Socket())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		return c
	}
	for range 100 { // more than it takes at a time
		dial()
	}
	if _, err := g.client.Status(t.Context()); err != nil {
		t.Errorf("beside silent clients: %v", err)
	}
	for name, head := range map[string]string{
		"a body without an end": "POST /do HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n", "a header without an end": "GET /status HTTP/1.1\r\nHost: x\r\nX: ", "bytes": "\x00\xff\x16\x03",
		"chunks": "POST /do HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n",
	} {
		c := dial()
		_, err := io.WriteString(c, head)
		must(t, err)
		sent, err := io.Copy(c, io.LimitReader(zeros{}, 100<<20))
		if err == nil || sent > 20<<20 {
			t.Errorf("%s: %d bytes were taken: %v", name, sent, err)
		}
	}
	for _, body := range []string{"", "{", "null x", `{"action":"pause"} {}`, `{"action":"pause","and":1}`, `{"action":7}`, `{"action":"set","set":{"tokens":1e999}}`, "[]", strings.Repeat(`{"action":`, 4000), "\xff\xfe"} {
		c := dial()
		_, err := fmt.Fprintf(c, "POST /do HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		must(t, err)
		b, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 409 ") || !strings.Contains(string(b), "cannot be read") {
			t.Errorf("%.40q: %q, %v", body, b, err)
		}
	}
	c := dial()
	_, err := io.WriteString(c, "POST /do HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{\"action\":")
	must(t, errors.Join(err, c.Close())) // goes away
	s, err := g.client.Status(t.Context())
	if err != nil || s.State != control.Running || s.InProgress != 2 || len(g.store.Index().Notes) != 0 {
		t.Errorf("afterwards: %+v, %v", s, err)
	}
}

// zeros is endless.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
