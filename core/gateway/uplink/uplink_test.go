package uplink_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/dialect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "key-canary-relay-5b1f"

// reply is a whole answer of a provider, which costs 1 USD at the price of the
// tests, as much as is reserved for it.
const reply = `{"id":"msg_1","type":"message","role":"assistant","model":"m1","content":[{"type":"text","text":"hello"}],` +
	`"stop_reason":"end_turn","usage":{"input_tokens":900,"output_tokens":100}}`

// provider is a server that answers as the test says.
type provider struct {
	*httptest.Server
	asked   atomic.Int64
	answers atomic.Int64
	strange atomic.Int64 // requests with another key
}

func provide(t *testing.T, do http.HandlerFunc) *provider {
	t.Helper()
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		if r.Header.Get("X-Api-Key") != canary {
			p.strange.Add(1)
		}
		for name := range r.Header {
			if strings.HasPrefix(name, "Berth-") {
				t.Errorf("the provider gets the header %s", name)
			}
		}
		_, _ = io.Copy(io.Discard, r.Body)
		do(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) answer(w http.ResponseWriter) {
	p.answers.Add(1)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, reply)
}

// model is a model of the provider as one process sees it. read reads the key.
func (p *provider) model(read func() (string, error)) *cell.Model {
	key := cell.Hidden(&cell.Secret{Label: `${secret("KEY")}`, Read: read})
	price := 1000.0
	return &cell.Model{
		Label: "m", Provider: "anthropic", Name: "m1", BaseURL: p.URL, APIKey: &key,
		Price: &dialect.Price{Input: &price, CachedInput: &price, CacheWrite: &price, Output: &price},
	}
}

func hasKey() (string, error) { return canary, nil }

// noKey is what a process reads that has no key.
func noKey() (string, error) { return "", errors.New("a pilot has read the key") }

// bed is the process with the keys, and pilots.
type bed struct {
	t      *testing.T
	p      *provider
	g      *gateway.Gateway
	server *uplink.Server
	model  *cell.Model // of the process with the keys
	trials []string

	mu     sync.Mutex
	place  uplink.Place
	tokens map[string]string
	makes  func(client, trial string, attempt int) error
}

type option func(*gateway.Options)

func newBed(t *testing.T, p *provider, more ...option) *bed {
	t.Helper()
	b := &bed{t: t, p: p, model: p.model(hasKey), tokens: map[string]string{}, makes: func(string, string, int) error { return nil }}
	for i := range 64 {
		b.trials = append(b.trials, fmt.Sprint("t", i))
	}
	o := gateway.Options{
		Dialects: dialects.All, Dir: filepath.Join(short(t), "g"), RateLimit: ratelimit.Options{GiveUpAfter: 5 * time.Second, First: 10 * time.Millisecond},
	}
	for _, set := range more {
		set(&o)
	}
	o.Models = append(o.Models, b.model)
	o.Cells = append(o.Cells, gateway.Cell{Name: "a", Trials: b.trials, Models: o.Models})
	var err error
	b.g, err = gateway.New(o)
	must(t, err)
	t.Cleanup(func() { must(t, b.g.Close()) })
	b.listen()
	return b
}

// listen starts a server, another one if there was one.
func (b *bed) listen() {
	b.t.Helper()
	s, err := uplink.Listen(b.t.Context(), uplink.Options{
		Address: "127.0.0.1", Gateway: b.g,
		Token: func(_ context.Context, client string) (string, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.tokens[client], nil
		},
		Makes: func(_ context.Context, client, trial string, attempt int) error {
			return b.makes(client, trial, attempt)
		},
		Secrets: []*cell.Secret{
			{Label: "one", Read: func() (string, error) { return "first value", nil }},
			{Label: "two", Read: func() (string, error) { return "a", nil }},
			{Label: "two", Read: func() (string, error) { return "b", nil }},
		},
	})
	must(b.t, err)
	b.t.Cleanup(func() { _ = s.Close() }) // some tests close it themselves
	b.mu.Lock()
	defer b.mu.Unlock()
	b.server, b.place = s, s.Place()
}

func (b *bed) where() uplink.Place {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.place
}

// short makes a folder with a short path.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(testlevel.Tmp(), "bul")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	testlevel.Must(t, err)
}

// pilot is a process without keys.
type pilot struct {
	b      *bed
	g      *gateway.Gateway
	client *uplink.Client
	model  *cell.Model
	asks   *cell.Model // the one that sessions ask; nil: model
}

func (b *bed) pilot(name string, more ...option) *pilot {
	b.t.Helper()
	token, err := uplink.Token()
	must(b.t, err)
	b.mu.Lock()
	b.tokens[name] = token
	b.mu.Unlock()
	p := &pilot{b: b, client: uplink.NewClient(name, token, b.where), model: b.p.model(noKey)}
	b.t.Cleanup(p.client.Close)
	o := gateway.Options{
		Dialects: dialects.All, Dir: filepath.Join(short(b.t), "g"), Uplink: p.client, Models: []*cell.Model{p.model},
		RateLimit: ratelimit.Options{GiveUpAfter: 20 * time.Second, First: 10 * time.Millisecond, Longest: 100 * time.Millisecond},
	}
	for _, set := range more {
		set(&o)
	}
	p.g, err = gateway.New(o)
	must(b.t, err)
	b.t.Cleanup(func() { must(b.t, p.g.Close()) })
	return p
}

// attempt is one attempt of a pilot.
type attempt struct {
	models.Session
	t     *testing.T
	mu    sync.Mutex
	lines []gateway.Exchange
}

func (p *pilot) attempt(trial string, more ...func(*models.Spec)) *attempt {
	p.b.t.Helper()
	a := &attempt{t: p.b.t}
	m := p.model
	if p.asks != nil {
		m = p.asks
	}
	spec := models.Spec{Trial: trial, Attempt: 1, Role: "agent", Models: map[string]*cell.Model{"default": m}, Append: a.append}
	for _, set := range more {
		set(&spec)
	}
	var err error
	a.Session, err = p.g.Session(p.b.t.Context(), spec)
	must(p.b.t, err)
	a.Allow(p.b.t.Context())
	return a
}

func (a *attempt) append(_ string, line any) {
	b, err := json.Marshal(line)
	var x gateway.Exchange
	if err == nil {
		err = json.Unmarshal(b, &x)
	}
	if err != nil {
		panic(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, x)
}

// end closes the attempt, and returns its last recorded exchange.
func (a *attempt) end() gateway.Exchange {
	a.t.Helper()
	must(a.t, a.Close(context.Background()))
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lines) == 0 {
		a.t.Fatal("no exchange is recorded")
	}
	return a.lines[len(a.lines)-1]
}

const question = `{"model":"m1","max_tokens":100,"messages":[{"role":"user","content":"%s"}]}`

// padded is a request for which 1 USD is reserved: 900 bytes and 100 tokens.
var padded = fmt.Sprintf(question, strings.Repeat("x", 900-len(question)+2))

// ask sends a request, and returns the status and the answer.
func (a *attempt) ask(ctx context.Context, body string) (int, string, error) {
	e := a.Endpoints()["default"]
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.HostURL+"/v1/messages", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("X-Api-Key", e.Token)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

// spend lets 64 attempts share some pilots, and returns how many were served and
// how many were refused by the budget of the run.
func spend(t *testing.T, pilots []*pilot, trials []string) (served, refused int64) {
	t.Helper()
	var ok, spent atomic.Int64
	var wg sync.WaitGroup
	for i, trial := range trials {
		wg.Go(func() {
			a := pilots[i%len(pilots)].attempt(trial)
			defer func() { _ = a.Close(context.Background()) }()
			status, text, err := a.ask(t.Context(), padded)
			switch r := a.State().Refusal; {
			case err == nil && status == http.StatusOK && r == nil:
				ok.Add(1)
			case err == nil && r != nil && r.Scope == record.ScopeRun && !r.Provider:
				spent.Add(1)
			default:
				t.Errorf("status %d, %v, %v: %s", status, err, r, text)
			}
		})
	}
	wg.Wait()
	return ok.Load(), spent.Load()
}

// 64 attempts on six pilots have a budget for 10.
func TestABudgetHoldsOverAllPilots(t *testing.T) {
	t.Parallel()
	var p *provider
	var full sync.Once
	together := make(chan struct{}) // closed when the whole budget is reserved
	p = provide(t, func(w http.ResponseWriter, r *http.Request) {
		if p.asked.Load() == 10 {
			full.Do(func() { close(together) })
		}
		select {
		case <-together:
		case <-r.Context().Done():
		}
		p.answer(w)
	})
	limit := 10.0
	b := newBed(t, p, func(o *gateway.Options) { o.Run = cell.Budget{CostUSD: &limit} })
	var pilots []*pilot
	for i := range 6 {
		pilots = append(pilots, b.pilot(fmt.Sprint("p", i)))
	}
	served, refused := spend(t, pilots, b.trials)
	if served != 10 || refused != 54 || p.asked.Load() != 10 || p.strange.Load() != 0 {
		t.Errorf("%d served, %d refused, %d requests at the provider, %d without the key", served, refused, p.asked.Load(), p.strange.Load())
	}
	if got := b.g.Settled(); got.USD > limit+1e-9 || got.Requests != 10 {
		t.Errorf("settled %+v", got)
	}
}

// A stream arrives as the provider sends it.
func TestAStreamIsNotHeldBack(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-seen:
		case <-time.After(30 * time.Second):
		}
		_, _ = io.WriteString(w, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":5}}\n\n"+
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	})
	b := newBed(t, p)
	a := b.pilot("p").attempt("t1")
	e := a.Endpoints()["default"]
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.HostURL+"/v1/messages", strings.NewReader(strings.Replace(padded, "{", `{"stream":true,`, 1)))
	must(t, err)
	req.Header.Set("X-Api-Key", e.Token)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	first := make([]byte, 20)
	_, err = io.ReadFull(resp.Body, first)
	must(t, err)
	close(seen)
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, err)
	if x := a.end(); x.Usage == nil || x.Usage.Input != 9 || x.Usage.Output != 5 {
		t.Errorf("usage %+v", x.Usage)
	}
	if got := b.g.Settled(); got.Tokens != 14 {
		t.Errorf("settled %+v", got)
	}
}

// firstLine is a log; written is closed when it gets its first line.
type firstLine struct {
	once    sync.Once
	written chan struct{}
}

func (l *firstLine) Write(p []byte) (int, error) {
	l.once.Do(func() { close(l.written) })
	return len(p), nil
}

// A provider that limits one pilot is not asked by the others before it allows it.
func TestAllPilotsWaitForTheProviderTogether(t *testing.T) {
	t.Parallel()
	var p *provider
	var early atomic.Int64
	var until atomic.Pointer[time.Time]
	p = provide(t, func(w http.ResponseWriter, _ *http.Request) {
		if p.asked.Load() == 1 {
			at := time.Now().Add(time.Second)
			until.Store(&at)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if at := until.Load(); at != nil && time.Now().Before(*at) {
			early.Add(1)
		}
		p.answer(w)
	})
	limited := &firstLine{written: make(chan struct{})}
	b := newBed(t, p, func(o *gateway.Options) { o.Log = zerolog.New(limited) })
	one, two := b.pilot("one").attempt("t1"), b.pilot("two").attempt("t2")
	var wg sync.WaitGroup
	wg.Go(func() {
		if status, text, err := one.ask(t.Context(), padded); err != nil || status != http.StatusOK {
			t.Errorf("status %d, %v: %s", status, err, text)
		}
	})
	select {
	case <-limited.written: // the gateway knows that the provider limits requests
	case <-time.After(time.Minute):
		t.Error("the gateway does not say that the provider limited a request")
	}
	wg.Go(func() {
		if status, text, err := two.ask(t.Context(), padded); err != nil || status != http.StatusOK {
			t.Errorf("status %d, %v: %s", status, err, text)
		}
	})
	wg.Wait()
	x, y := one.end(), two.end()
	if x.Tries != 1 || early.Load() != 0 || x.Waited < 500*time.Millisecond || y.Waited < 500*time.Millisecond {
		t.Errorf("%d tries, %d requests came too early, waited %s and %s", x.Tries, early.Load(), x.Waited, y.Waited)
	}
	if one.Waited() < 500*time.Millisecond || two.Waited() < 500*time.Millisecond {
		t.Errorf("the sessions have waited %s and %s", one.Waited(), two.Waited())
	}
}
