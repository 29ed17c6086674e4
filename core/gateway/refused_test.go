package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/dialect"
)

const page = "<html><body>Log in to the network of this hotel</body></html>"

// If a provider sends something other than a reply, the provider is at fault,
// however the client reacts.
func TestAnAnswerThatIsNoneIsTheProvidersFault(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		whole := recorded(t, r.dialect)
		var events dialect.Events
		first := ""
		events.Write(whole, func(e dialect.Event) {
			if first == "" {
				first = string(e.Raw)
			}
		})
		for _, tt := range []struct {
			name, media, body string
			status            int
			stream            bool
			down              string
		}{
			{"garbage", "application/json", "\x00\x01 {{{", 200, false, "is not valid for " + r.dialect},
			{"a page", "text/html", page, 200, false, `(text/html) is not valid for ` + r.dialect + `: "<html>`},
			{"half of it", "application/json", `{"content":[{"type":"te`, 200, false, "is not valid"},
			{"something else", "application/json", `{"detail":"Not Found"}`, 200, false, "is not valid"},
			{"nothing", "application/json", "", 200, false, "is not valid"},
			{"an error with status 200", "application/json", `{"error":{"message":"upstream is gone","code":502}}`, 200, false, "upstream is gone"},
			{"a page instead of a stream", "text/html", page, 200, true, "is not valid"},
			{"garbage in a stream", eventStream, "data: {{{\n\n" + string(whole), 200, true, "an event that is not JSON"},
			{"no stream at all", eventStream, "", 200, true, "its stream has no end"},
			{"a stream without its end", eventStream, first, 200, true, "its stream has no end"},
			{"a page with status 400", "text/html", page, 400, false, "status 400 from 127.0.0.1:"},
			{"a page with status 404", "text/html", page, 404, false, "status 404 from 127.0.0.1:"},
			{"a teapot", "text/plain", "no coffee", 418, true, ": no coffee"},
			{"no credit", "application/json", `{"error":{"message":"Your balance is too low (request 17a)"}}`, 400, true, "status 400"},
		} {
			t.Run(r.dialect+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", tt.media)
					w.WriteHeader(tt.status)
					_, _ = io.WriteString(w, tt.body)
				})
				b := start(t, p.model(r.dialect))
				path, body := r.path, r.body
				if tt.stream {
					path, body = streaming(i)
				}
				b.ask(t.Context(), t, path, body)
				x := b.last(t)
				if down := b.State().Down; down == nil || !strings.Contains(down.Error(), tt.down) || b.State().Refused != nil {
					t.Errorf("down: %v, refused: %v; want %q", down, b.State().Refused, tt.down)
				}
				if tt.status >= 400 && x.Cause != CauseProvider {
					t.Errorf("the cause is %q", x.Cause)
				}
			})
		}
	}
}

// If the provider refuses a request because of its content but serves the
// smallest one, the agent is at fault. Later requests count.
func TestARequestThatTheProviderRefusesIsTheAgents(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			whole := recorded(t, r.dialect)
			var p *provider
			p = provide(t, func(w http.ResponseWriter, _ *http.Request) {
				p.mu.Lock()
				last := p.bodies[len(p.bodies)-1]
				p.mu.Unlock()
				if strings.Contains(last, "no_such_field") {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, `{"error":{"message":"no_such_field: extra fields are not allowed"}}`)
					return
				}
				w.Header().Set("Content-Type", eventStream)
				_, _ = w.Write(whole)
			})
			b := start(t, p.model(r.dialect), func(_ *cell.Model, _ *Options, s *models.Spec) { s.Hosted = true })
			path, body := streaming(i)
			got := b.ask(t.Context(), t, path, strings.Replace(body, "{", `{"no_such_field":1,`, 1))
			x := b.last(t)
			if got.status != http.StatusBadRequest || x.Cause != CauseRequest || b.State().Down != nil || b.State().Refused == nil || !strings.Contains(b.State().Refused.Error(), "extra fields are not allowed") {
				t.Fatalf("%d, cause %q, down %v, refused %v", got.status, x.Cause, b.State().Down, b.State().Refused)
			}
			if f := b.Findings(); len(f) != 1 || f[0].Code != "request_refused" || !strings.Contains(f[0].Text, "extra fields") {
				t.Errorf("findings %+v", f)
			}
			if len(p.bodies) != 2 || !strings.Contains(p.bodies[1], "Say yes.") || p.heads[1].Get("Content-Type") != "application/json" || strings.Contains(fmt.Sprint(p.heads[1]), "berth-") {
				t.Errorf("asked %q with %v", p.bodies, p.heads)
			}
			if got = b.ask(t.Context(), t, path, body); got.status != http.StatusOK || b.State().Refused != nil || b.State().Down != nil {
				t.Errorf("%d, down %v, refused %v", got.status, b.State().Down, b.State().Refused)
			}
			if b.Usage()[0].Requests != 1 {
				t.Errorf("usage %+v", b.Usage())
			}
		})
	}
}

// If the provider refuses a parameter of the experiment, the agent is not at
// fault: the smallest request has the same parameter.
func TestAParameterThatIsRefusedIsNotTheAgents(t *testing.T) {
	t.Parallel()
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"temperature is not supported by this model"}}`)
	})
	b := start(t, p.model("openai"), func(m *cell.Model, _ *Options, _ *models.Spec) { m.Parameters = []byte(`{"temperature":0}`) })
	b.ask(t.Context(), t, requests[1].path, requests[1].body)
	if x := b.last(t); x.Cause != CauseProvider || b.State().Down == nil || !strings.Contains(p.bodies[1], `"temperature":0`) {
		t.Errorf("cause %q, down %v, asked %q", x.Cause, b.State().Down, p.bodies)
	}
}

// A refusal says nothing about the agent unless the provider serves the
// smallest request.
func TestARefusalIsNotTheAgentsWhenNobodyCanTell(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusNotFound, 0} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var p *provider
			p = provide(t, func(w http.ResponseWriter, _ *http.Request) {
				p.mu.Lock()
				last := p.bodies[len(p.bodies)-1]
				p.mu.Unlock()
				w.Header().Set("Content-Type", "application/json")
				switch {
				case !strings.Contains(last, "Say yes."):
					w.WriteHeader(http.StatusBadRequest)
				case status == 0:
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(status)
				}
				_, _ = io.WriteString(w, `{"error":{"message":"something about the request"}}`)
			})
			b := start(t, p.model("openai"))
			b.ask(t.Context(), t, requests[1].path, requests[1].body)
			if x := b.last(t); x.Cause != CauseProvider || b.State().Down == nil || b.State().Refused != nil {
				t.Errorf("cause %q, down %v, refused %v", x.Cause, b.State().Down, b.State().Refused)
			}
		})
	}
}

// An error names a path that the gateway does not serve.
func TestAPathThatIsNotServedIsNamed(t *testing.T) {
	t.Parallel()
	b := start(t, scripted(t, oneReply))
	if got := b.ask(t.Context(), t, "/v1/embeddings", `{}`); got.status != http.StatusNotFound {
		t.Errorf("%d", got.status)
	}
	const want = `the agent sent POST "/v1/embeddings", which the gateway does not serve`
	if err := b.State().Refused; err == nil || err.Error() != want || b.State().Down != nil {
		t.Errorf("refused: %v, down %v", err, b.State().Down)
	}
	if f := b.Findings(); len(f) != 1 || f[0].Code != "not_served" || f[0].Text != want {
		t.Errorf("findings %+v", f)
	}
	b.ask(t.Context(), t, requests[0].path, requests[0].body)
	b.ask(t.Context(), t, "/v1/statistics", `{}`)
	if b.State().Refused != nil || len(b.Findings()) != 2 {
		t.Errorf("an agent that was answered is blamed: %v, %+v", b.State().Refused, b.Findings())
	}
}
