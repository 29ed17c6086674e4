package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
)

// page is a session with what a page would show.
type page struct {
	actions []environment.Action
	closed  bool
	calls   []environment.Call
	step    environment.Step
	err     error
}

func (p *page) Actions(context.Context) (environment.Offer, error) {
	if p.closed {
		return environment.Offer{}, fault.ErrRevoked
	}
	return environment.Offer{Actions: p.actions, Observations: []string{"text", "url", "screenshot"}, Steps: 7}, nil
}

func (p *page) Observe(context.Context, []string) (environment.Observation, error) {
	return p.step.Observation, p.err
}

func (p *page) Act(_ context.Context, c environment.Call, _ []string) (environment.Step, error) {
	p.calls = append(p.calls, c)
	return p.step, p.err
}

var png = []byte("\x89PNG\r\n\x1a\n and more")

func aPage() *page {
	return &page{
		actions: []environment.Action{
			{Name: "click", Doc: "Clicks an element.", Schema: json.RawMessage(`{"properties":{"bid":{"type":"string"}},"required":["bid"]}`)},
			{Name: "observe"},
			{Name: "broken", Schema: json.RawMessage(`[1]`)},
		},
		step: environment.Step{Observation: environment.Observation{
			Text: "a page", JSON: json.RawMessage(`{"url":"http://app.test/","tabs":[1]}`),
			Frames: []environment.Frame{{Name: "screenshot", MediaType: "image/png", Data: png}},
		}},
	}
}

// connected returns a client of the protocol whose connections the server gets
// one by one, as those of a port inside a sandbox.
func connected(t *testing.T, p *page) (*sdk.ClientSession, error) {
	t.Helper()
	s := New(p)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	dial := func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go s.Serve(there)
		return here, nil
	}
	return sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: "http://127.0.0.1:1" + Path, HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, MaxRetries: -1,
	}, nil)
}

func client(t *testing.T, p *page) *sdk.ClientSession {
	t.Helper()
	c, err := connected(t, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEachActionIsATool(t *testing.T) {
	t.Parallel()
	c := client(t, aPage())
	got, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range got.Tools {
		names = append(names, tool.Name)
		schema, ok := tool.InputSchema.(map[string]any)
		if !ok || schema["type"] != "object" {
			t.Errorf("tool %s has the schema %v; want one of an object", tool.Name, tool.InputSchema)
		}
		if tool.Name == "click" && (tool.Description != "Clicks an element." || schema["required"] == nil) {
			t.Errorf("click is %q with %v", tool.Description, schema)
		}
	}
	if want := []string{"broken", "click", "observe", "observe_surface"}; !slices.Equal(names, want) {
		t.Errorf("tools %q, want %q", names, want)
	}
	if i := c.InitializeResult().Instructions; !strings.Contains(i, "observe_surface only shows it") || !strings.Contains(i, "At most 7 actions") {
		t.Errorf("instructions %q", i)
	}
}

func TestACallActsAndShowsWhatFollows(t *testing.T) {
	t.Parallel()
	p := aPage()
	c := client(t, p)
	got, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "click", Arguments: map[string]any{"bid": "12"}})
	if err != nil || got.IsError {
		t.Fatalf("%+v, %v", got, err)
	}
	if len(p.calls) != 1 || p.calls[0].Name != "click" || string(p.calls[0].Arguments) != `{"bid":"12"}` {
		t.Errorf("the surface got %+v", p.calls)
	}
	texts, pictures := parts(t, got)
	if want := []string{"a page", "tabs: [1]", "url: http://app.test/"}; !slices.Equal(texts, want) {
		t.Errorf("texts %q, want %q", texts, want)
	}
	if len(pictures) != 1 || string(pictures[0].Data) != string(png) || pictures[0].MIMEType != "image/png" {
		t.Errorf("pictures %v", pictures)
	}
	if got, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "observe_surface"}); err != nil || len(got.Content) != 4 || len(p.calls) != 1 {
		t.Errorf("observing gives %+v, %v, after %d calls of actions", got, err, len(p.calls))
	}
}

func TestWhatFailedIsAnErrorOfTheTool(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*page)
		want   string
		failed bool
	}{
		"the surface refused it": {func(p *page) { p.step.Error = "no such element" }, "The action failed: no such element", true},
		"the episode is over":    {func(p *page) { p.step.Done = true }, "The episode is over.", false},
		"the steps are used up":  {func(p *page) { p.step.Truncated = true }, "No further action is possible.", false},
		"nothing was shown":      {func(p *page) { p.step = environment.Step{} }, "Done.", false},
		"the call was cut":       {func(p *page) { p.err = fault.ErrRevoked }, fault.ErrRevoked.Error(), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := aPage()
			tt.change(p)
			got, err := client(t, p).CallTool(t.Context(), &sdk.CallToolParams{Name: "click", Arguments: map[string]any{"bid": "1"}})
			if err != nil {
				t.Fatal(err)
			}
			if texts, _ := parts(t, got); got.IsError != tt.failed || len(texts) == 0 || texts[0] != tt.want {
				t.Errorf("error %v, texts %q; want %v, %q first", got.IsError, texts, tt.failed, tt.want)
			}
		})
	}
}

func TestNothingIsAnsweredBetweenTurns(t *testing.T) {
	t.Parallel()
	p := aPage()
	p.closed = true
	if _, err := connected(t, p); err == nil {
		t.Error("a closed session greets a client")
	}
	w := httptest.NewRecorder()
	s := New(p)
	defer func() { _ = s.Close() }()
	s.answer(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, strings.NewReader(`{}`)))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", w.Code)
	}
}

func TestTheServerHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	got := Of(81, []agent.Server{{Name: "surface"}, {Name: "berth-surface"}})
	if got.Name != "berth-berth-surface" || got.URL != "http://127.0.0.1:81/mcp" || got.Transport != "streamable-http" {
		t.Errorf("%+v", got)
	}
}

// parts returns the texts and the pictures of a result.
func parts(t *testing.T, r *sdk.CallToolResult) (texts []string, pictures []*sdk.ImageContent) {
	t.Helper()
	for _, c := range r.Content {
		switch c := c.(type) {
		case *sdk.TextContent:
			texts = append(texts, c.Text)
		case *sdk.ImageContent:
			pictures = append(pictures, c)
		default:
			t.Fatal(errors.New("other content"))
		}
	}
	return texts, pictures
}
