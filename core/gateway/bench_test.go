package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/dialects"
)

// atOnce is a provider that responds without reading the request.
type atOnce struct{ body string }

// RoundTrip implements http.RoundTripper.
func (p atOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(p.body)),
	}, err
}

// This is the cost of the gateway itself for a request of 50 KB, as late in a
// conversation, with recording.
func BenchmarkRequest(b *testing.B) {
	stream, err := os.ReadFile(filepath.Join("testdata", "anthropic.sse"))
	if err != nil {
		b.Fatal(err)
	}
	key := cell.Plain(canaryKey)
	m := cell.Model{Label: "m", Provider: "anthropic", Name: "m1", BaseURL: "http://nowhere", APIKey: &key}
	dir := b.TempDir()
	g, err := New(Options{Dialects: dialects.All, Dir: filepath.Join(dir, "g"), Models: []*cell.Model{&m}, Transport: atOnce{string(stream)}})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	s, err := g.Session(b.Context(), models.Spec{
		Trial: "t", Attempt: 1, Role: "agent", Dir: dir, Append: func(string, any) {}, Models: map[string]*cell.Model{"default": &m},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(b.Context())
	if err = s.Allow(b.Context()); err != nil {
		b.Fatal(err)
	}
	e := s.Endpoints()["default"]
	c := unixClient(e.Host)
	defer c.CloseIdleConnections()
	text := strings.Repeat("some words of a tool ", 50<<10/21)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		body := fmt.Sprintf(`{"model":"m1","max_tokens":100,"stream":true,"n":%d,"messages":[{"role":"user","content":%q}]}`, i, text)
		if err = benchmarked(b, c, e.Token, body); err != nil {
			b.Fatal(err)
		}
	}
	if err = s.Revoke(b.Context()); err != nil { // all is written down
		b.Fatal(err)
	}
}

func benchmarked(b *testing.B, c *http.Client, token, body string) error {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://gateway/v1/messages", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-Api-Key", token)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
