package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/dialect"
)

// usualPace waits ten minutes for a provider that fails, so a test that waited
// would not end.
func usualPace(_ *cell.Model, o *Options, _ *models.Spec) { o.RateLimit = ratelimit.Options{} }

// closedPort is an address on which no process listens.
func closedPort(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	testlevel.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// If a provider cannot be reached, or rejects the key, the first request ends
// the run with the address and the cause.
func TestAProviderThatNobodyCanReachEndsTheRun(t *testing.T) {
	t.Parallel()
	status := func(n int) string {
		return provide(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }).URL
	}
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = nil
	untrusted.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	untrusted.StartTLS()
	defer untrusted.Close()
	plain := provide(t, func(http.ResponseWriter, *http.Request) {})
	unknown := "no such host: provider.invalid"
	if _, err := net.DefaultResolver.LookupHost(t.Context(), "provider.invalid"); !namesServed(err) {
		unknown = "the name provider.invalid cannot be looked up: "
	}
	for name, tt := range map[string]struct{ base, says string }{
		"refused":        {"http://" + closedPort(t), "connection refused by 127.0.0.1:"},
		"no such host":   {"http://provider.invalid", unknown},
		"no certificate": {untrusted.URL, "the certificate of 127.0.0.1:"},
		"no TLS":         {strings.Replace(plain.URL, "http:", "https:", 1), "does not speak TLS (https)"},
		"401":            {status(401), "does not accept the api_key (status 401)"},
		"402":            {status(402), "wants to be paid first (status 402)"},
		"403":            {status(403), "does not allow it with this api_key (status 403)"},
	} {
		t.Run(name, func(t *testing.T) {
			m := provide(t, func(http.ResponseWriter, *http.Request) {}).model("anthropic")
			m.BaseURL = tt.base
			b := start(t, m, usualPace)
			if got := b.ask(t.Context(), t, requests[0].path, requests[0].body); got.status < 400 {
				t.Errorf("answered with %d %s", got.status, got.body)
			}
			select {
			case <-b.Spent():
			case <-time.After(time.Minute):
				t.Fatal("the turn goes on")
			}
			r := b.State().Refusal
			if r == nil || !r.Provider || r.Scope != record.ScopeRun || !strings.Contains(r.Err.Error(), tt.says) || !strings.Contains(r.Err.Error(), `model "m1"`) {
				t.Errorf("refusal %+v; want %q", r, tt.says)
			}
			if strings.Contains(fmt.Sprint(r), canaryKey) {
				t.Error("the key is in it")
			}
		})
	}
}

// namesServed reports whether an error of a look-up is the answer of a server for names, which
// a machine without a network does not reach.
func namesServed(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// The gateway waits for a provider that has served before; such a provider
// alone does not end the run.
func TestAProviderThatHasServedIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 503} {
		var asked atomic.Int64
		p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) > 1 {
				w.WriteHeader(status)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"content":[],"usage":{"input_tokens":3,"output_tokens":4}}`)
		})
		b := start(t, p.model("anthropic"))
		for range 2 {
			b.ask(t.Context(), t, requests[0].path, requests[0].body)
		}
		if b.State().Refusal != nil || b.State().Down == nil {
			t.Errorf("%d: refusal %+v, down %v", status, b.State().Refusal, b.State().Down)
		}
	}
}

// If several attempts in a row have ended in the same way, the next one ends
// the run. A response in between resets the count.
func TestEqualFailuresInARowEndTheRun(t *testing.T) {
	t.Parallel()
	var good atomic.Bool
	good.Store(true)
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if good.Load() {
			_, _ = io.WriteString(w, `{"content":[],"usage":{"input_tokens":3,"output_tokens":4}}`)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	first := start(t, p.model("anthropic"), func(_ *cell.Model, o *Options, _ *models.Spec) {
		o.RateLimit = ratelimit.Options{GiveUpAfter: time.Nanosecond, First: time.Millisecond, Longest: time.Millisecond}
	})
	asked := first.spec.Models
	attempt := func(n int, ok bool) *models.Refusal {
		good.Store(ok)
		b := &bench{g: first.g}
		b.session = b.open(t, models.Spec{Trial: fmt.Sprint("t", n), Attempt: 1, Role: "agent", Models: asked})
		b.e = b.Endpoints()["default"]
		b.c = unixClient(b.e.Host)
		for range 3 { // the agent tries again
			b.ask(t.Context(), t, requests[0].path, requests[0].body)
		}
		b.c.CloseIdleConnections()
		r := b.State().Refusal
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return r
	}
	attempt(0, true)
	for n := 1; n <= maxEqual; n++ {
		if r := attempt(n, false); r != nil {
			t.Fatalf("attempt %d: %v", n, r.Err)
		}
	}
	attempt(10, true)
	for n := 11; n <= 10+maxEqual; n++ {
		if r := attempt(n, false); r != nil {
			t.Fatalf("attempt %d: %v", n, r.Err)
		}
	}
	if r := attempt(20, false); r == nil || !r.Provider || !strings.Contains(r.Err.Error(), "status 500 from 127.0.0.1:") || !strings.Contains(r.Err.Error(), "5 attempts in a row have ended so") {
		t.Errorf("refusal %+v", r)
	}
}

// A provider with the certificate of a private authority serves with ca_file;
// otherwise the error names ca_file.
func TestAPrivateAuthority(t *testing.T) {
	t.Parallel()
	served := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"content":[],"usage":{"input_tokens":3,"output_tokens":4}}`)
	}))
	served.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	served.StartTLS()
	t.Cleanup(served.Close)
	file := func(der []byte) string {
		path := filepath.Join(t.TempDir(), "ca.pem")
		testlevel.Must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
		return path
	}
	unrelated := file(selfSigned(t))
	for name, tt := range map[string]struct{ ca, says string }{
		"with it":      {ca: file(served.Certificate().Raw)},
		"without it":   {says: `name the file with its certificate in ca_file of model "m"`},
		"with another": {ca: unrelated, says: fmt.Sprintf("ca_file %q does not have that authority", unrelated)},
	} {
		m := provide(t, func(http.ResponseWriter, *http.Request) {}).model("anthropic")
		m.BaseURL, m.CAFile = served.URL, tt.ca
		b := start(t, m, usualPace)
		got := b.ask(t.Context(), t, requests[0].path, requests[0].body)
		if down := b.State().Down; (got.status == http.StatusOK) != (tt.says == "") || tt.says != "" && !strings.Contains(fmt.Sprint(down), tt.says) {
			t.Errorf("%s: %d, down %v; want %q", name, got.status, down, tt.says)
		}
	}
	m := provide(t, func(http.ResponseWriter, *http.Request) {}).model("anthropic")
	m.CAFile = filepath.Join(t.TempDir(), "none.pem")
	if _, err := New(Options{Dialects: dialects.All, Models: []*cell.Model{&m}}); err == nil || !strings.Contains(err.Error(), "none.pem") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// selfSigned makes the certificate of an authority that signs nothing.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testlevel.Must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another"}, IsCA: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	testlevel.Must(t, err)
	return der
}

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
