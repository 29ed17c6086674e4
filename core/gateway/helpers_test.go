package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canaryKey = "key-canary-5b1f"

// recordingIn opens the recording of the run in a folder.
func recordingIn(dir string) (Recording, error) { return store.OpenRecorded(dir) }

// bench is a gateway with one model and one session of it.
type bench struct {
	*session
	g     *Gateway
	dir   string // of the attempt
	e     model.Endpoint
	c     *http.Client
	mu    sync.Mutex
	lines []Exchange
}

type setting func(*cell.Model, *Options, *models.Spec)

func start(t *testing.T, m cell.Model, more ...setting) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir()}
	run, err := os.MkdirTemp("", "gw")
	testlevel.Must(t, err)
	o := Options{Dialects: dialects.All, Dir: filepath.Join(run, "g"), RateLimit: ratelimit.Options{GiveUpAfter: time.Nanosecond}, Replay: recordingIn}
	spec := models.Spec{Trial: "t1", Attempt: 1, Role: "agent", Dir: b.dir, Append: b.append}
	m.Label = "m"
	for _, set := range more {
		set(&m, &o, &spec)
	}
	o.Models = append(o.Models, &m)
	if b.g, err = New(o); err != nil {
		t.Fatal(err)
	}
	spec.Models = map[string]*cell.Model{"default": &m}
	b.session = b.open(t, spec)
	b.e = b.Endpoints()["default"]
	b.c = unixClient(b.e.Host)
	t.Cleanup(func() {
		b.c.CloseIdleConnections()
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := b.g.Close(); err != nil {
			t.Errorf("close gateway: %v", err)
		}
		_ = os.RemoveAll(run)
	})
	return b
}

func (b *bench) open(t *testing.T, spec models.Spec) *session {
	t.Helper()
	s, err := b.g.Session(t.Context(), spec)
	testlevel.Must(t, err)
	s.Allow(t.Context())
	own, ok := s.(*session)
	if !ok {
		t.Fatalf("a session is a %T", s)
	}
	return own
}

func (b *bench) append(_ string, line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	var x Exchange
	if err = json.Unmarshal(text, &x); err != nil {
		panic(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, x)
	f, err := os.OpenFile(filepath.Join(b.dir, record.ExchangesFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.Write(append(text, '\n'))
		_ = f.Close()
	}
}

// last returns the last recorded exchange when no request is in progress.
func (b *bench) last(t *testing.T) Exchange {
	t.Helper()
	var x Exchange
	testlevel.Eventually(t, "an exchange is written down", func() bool {
		b.session.mu.Lock()
		inside := b.inside
		b.session.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		n := len(b.lines)
		if n > 0 && inside == 0 {
			x = b.lines[n-1]
			return true
		}
		return false
	})
	return x
}

func unixClient(address string) *http.Client {
	path := strings.TrimPrefix(address, "unix:")
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
}

// reply is a response, up to its end or to where it broke.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (b *bench) ask(ctx context.Context, t *testing.T, path, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway"+path, strings.NewReader(body))
	testlevel.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+b.e.Token)
	req.Header.Set("X-Goog-Api-Key", b.e.Token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.c.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(all), err}
}

// There is a request for each dialect, with and without a stream.
var requests = []struct {
	dialect, path, body, streamPath, streamBody string
}{
	{"anthropic", "/v1/messages?beta=true", `{"model":"m1","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"thinking":{"x_new":{"b":1,"a":2}}}`, "", ""},
	{"openai", "/v1/responses", `{"model":"m1","input":"hi","text":{"x_new":1}}`, "", ""},
	{"openai-chat", "/v1/chat/completions", `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`, "", ""},
	{
		"gemini", "/v1beta/models/m1:generateContent", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`,
		"/v1beta/models/m1:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`,
	},
}

func streaming(i int) (path, body string) {
	r := requests[i]
	if r.streamPath != "" {
		return r.streamPath, r.streamBody
	}
	return r.path, strings.Replace(r.body, `{`, `{"stream":true,`, 1)
}

func scripted(t *testing.T, text string) cell.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.yaml")
	testlevel.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return cell.Model{Provider: "script", Name: "m1", Script: path}
}

// priced is a price in USD per million tokens.
func priced(in, cached, write, out float64) *dialect.Price {
	return &dialect.Price{Input: &in, CachedInput: &cached, CacheWrite: &write, Output: &out}
}

// provider is a server that responds as the test says, and keeps its requests.
type provider struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	heads  []http.Header
	paths  []string
}

func provide(t *testing.T, do http.HandlerFunc) *provider {
	t.Helper()
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.bodies, p.heads, p.paths = append(p.bodies, string(all)), append(p.heads, r.Header), append(p.paths, r.URL.RequestURI())
		p.mu.Unlock()
		do(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// replies always replies with this JSON.
func replies(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

func (p *provider) model(dialect string) cell.Model {
	base := p.URL
	if strings.HasPrefix(dialect, "openai") {
		base += "/v1"
	}
	key := cell.Plain(canaryKey)
	return cell.Model{Provider: dialect, Name: "m1", BaseURL: base, APIKey: &key}
}

// recorded reads the bytes of a stream that a provider sent.
func recorded(t *testing.T, dialect string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", dialect+".sse"))
	testlevel.Must(t, err)
	return b
}

// contextUntil ends when the channel is closed.
func contextUntil(t *testing.T, over <-chan struct{}) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		select {
		case <-over:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}
