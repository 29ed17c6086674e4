package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/dialect"
)

const (
	keyA = "key-canary-aaaa-1"
	keyB = "key-canary-bbbb-2"
)

// chatAnswer is an answer with 10 tokens of input and 5 of output.
const chatAnswer = `{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`

func answerChat(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(chatAnswer))
}

// twoKeys is a model with two keys, of a provider that answers each as told.
func twoKeys(t *testing.T, do func(key string, w http.ResponseWriter)) (*provider, cell.Model) {
	t.Helper()
	p := provide(t, func(w http.ResponseWriter, r *http.Request) {
		do(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), w)
	})
	m := p.model("openai-chat")
	m.APIKey, m.APIKeys = nil, []cell.Text{cell.Plain(keyA), cell.Plain(keyB)}
	return p, m
}

// keysAsked returns the keys of all requests so far.
func (p *provider) keysAsked() (keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.heads {
		keys = append(keys, strings.TrimPrefix(h.Get("Authorization"), "Bearer "))
	}
	return keys
}

// A status that every key gets says nothing about a key: the agent sees it, and
// no key is given up.
func TestWhatAllKeysGetIsNotAboutAKey(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	p, m := twoKeys(t, func(_ string, w http.ResponseWriter) {
		if refuse.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		answerChat(w)
	})
	b := start(t, m)
	for i, want := range []int{200, 403, 200} {
		refuse.Store(want == 403)
		if got := b.ask(t.Context(), t, requests[2].path, requests[2].body); got.status != want {
			t.Fatalf("request %d: %d %s, want %d", i, got.status, got.body, want)
		}
	}
	if asked := p.keysAsked(); !slices.Equal(asked, []string{keyA, keyA, keyB, keyA}) || len(b.Findings()) != 0 {
		t.Errorf("asked with %q, findings %+v", asked, b.Findings())
	}
}

// A key that is limited does not stall requests that another key can serve, and
// sessions begin with different keys.
func TestALimitedKeyDoesNotStallTheOthers(t *testing.T) {
	t.Parallel()
	p, m := twoKeys(t, func(key string, w http.ResponseWriter) {
		if key == keyA {
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answerChat(w)
	})
	b := start(t, m, func(_ *cell.Model, o *Options, _ *models.Spec) { o.RateLimit = ratelimit.Options{} })
	begin := time.Now()
	for range 3 {
		if got := b.ask(t.Context(), t, requests[2].path, requests[2].body); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if took := time.Since(begin); took >= 300*time.Second { // the promise: what the provider said of one key holds for that key
		t.Errorf("took %s: the pause of one key was waited for", took)
	}
	if asked := p.keysAsked(); !slices.Equal(asked, []string{keyA, keyB, keyB, keyB}) {
		t.Errorf("asked with %q", asked)
	}
	if x := b.last(t); x.Key != 2 {
		t.Errorf("recorded %+v", x)
	}
}

// withFallback gives the model a fallback at another server.
func withFallback(to *provider, dialect string, price *dialect.Price) setting {
	return func(m *cell.Model, _ *Options, _ *models.Spec) {
		f := to.model(dialect)
		f.Label, f.Name, f.Price = "f", "m2", price
		m.Fallback = []*cell.Model{&f}
	}
}

// The agent's own mistake, a key that never worked and an answer are the
// model's; a limit is waited for before a fallback is asked.
func TestWhenAFallbackIsNotAsked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		want   int
		asked  bool
	}{
		{"a bad request", http.StatusBadRequest, http.StatusBadRequest, false},
		{"too long a conversation", http.StatusRequestEntityTooLarge, http.StatusRequestEntityTooLarge, false},
		{"a wrong key", http.StatusUnauthorized, http.StatusUnauthorized, false},
		{"a limit that lasts", http.StatusTooManyRequests, http.StatusOK, true},
		{"an error that lasts", http.StatusInternalServerError, http.StatusOK, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			first := provide(t, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.WriteHeader(tt.status)
			})
			second := provide(t, func(w http.ResponseWriter, _ *http.Request) { answerChat(w) })
			b := start(t, first.model("openai-chat"), patient, withFallback(second, "openai-chat", nil), func(_ *cell.Model, o *Options, _ *models.Spec) {
				o.RateLimit.GiveUpAfter = 100 * time.Millisecond
			})
			got := b.ask(t.Context(), t, requests[2].path, requests[2].body)
			if len(second.keysAsked()) > 0 != tt.asked {
				t.Errorf("the fallback was asked %d times; answer %d %s", len(second.keysAsked()), got.status, got.body)
			}
			if x := b.last(t); x.Status != tt.want {
				t.Errorf("recorded %+v, want status %d", x, tt.want)
			}
			if tt.asked && asked.Load() < 2 {
				t.Error("the model was asked once only: a limit, and an error of a moment, are waited for")
			}
		})
	}
}

// A budget is for all models: it has to have room for the fallback, too.
func TestAFallbackIsBoundByBudgets(t *testing.T) {
	t.Parallel()
	first := provide(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	second := provide(t, func(w http.ResponseWriter, _ *http.Request) { answerChat(w) })
	budget := 0.01
	b := start(t, first.model("openai-chat"), withFallback(second, "openai-chat", priced(1e6, 1e6, 1e6, 1e6)), func(m *cell.Model, _ *Options, s *models.Spec) {
		m.Price, s.Budget.CostUSD = priced(0.01, 0.01, 0.01, 0.01), &budget
	})
	got := b.ask(t.Context(), t, requests[2].path, requests[2].body)
	if got.status == http.StatusOK || len(second.keysAsked()) != 0 || b.State().Refusal == nil {
		t.Errorf("%d %s, asked %q, refusal %+v", got.status, got.body, second.keysAsked(), b.State().Refusal)
	}
	second2 := second.model("openai-chat")
	second2.Name = "of-unknown-price"
	m := first.model("openai-chat")
	m.Price, m.Fallback = priced(1, 1, 1, 1), []*cell.Model{&second2}
	_, err := New(Options{Dialects: b.g.o.Dialects, Dir: t.TempDir() + "/g", Models: []*cell.Model{&m}, Cells: []Cell{{Limit: b.accounts[0].Limit(), Models: []*cell.Model{&m}}}})
	if err == nil || !strings.Contains(err.Error(), "price is not known") {
		t.Errorf("a budget in USD with a fallback of unknown price: %v", err)
	}
}

// One session has so many requests in progress, whatever the agent sends.
func TestASessionDoesNotFloodTheProvider(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{})
	var once sync.Once
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		if now == maxAtOnce {
			once.Do(func() { close(full) })
		}
		mu.Unlock()
		<-full
		mu.Lock()
		now--
		mu.Unlock()
		answerChat(w)
	})
	b := start(t, p.model("openai-chat"))
	done := make(chan int)
	for range 3 * maxAtOnce {
		go func() { done <- b.ask(t.Context(), t, requests[2].path, requests[2].body).status }()
	}
	for range 3 * maxAtOnce {
		if status := <-done; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most != maxAtOnce {
		t.Errorf("%d requests at the same time; want %d", most, maxAtOnce)
	}
}

// in_flight of an agent bounds the requests of all of its sessions together.
func TestAnAgentHasSoManyRequestsInFlight(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	var mu sync.Mutex
	most := int64(0)
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		mu.Lock()
		most = max(most, n)
		mu.Unlock()
		time.Sleep(20 * time.Millisecond) // so that requests overlap
		now.Add(-1)
		answerChat(w)
	}))
	t.Cleanup(p.Close)
	key := cell.Plain(canaryKey)
	b := start(t, cell.Model{Provider: "openai-chat", Name: "m1", BaseURL: p.URL + "/v1", APIKey: &key}, func(_ *cell.Model, _ *Options, s *models.Spec) {
		s.Agent, s.InFlight = "a", 2
	})
	spec := b.spec
	spec.Attempt = 2
	second := b.open(t, spec)
	t.Cleanup(func() { _ = second.Close(context.Background()) })
	c := unixClient(second.Endpoints()["default"].Host)
	defer c.CloseIdleConnections()
	other := &bench{session: second, c: c, e: second.Endpoints()["default"]}
	done := make(chan int)
	for i := range 12 {
		go func() {
			from := b
			if i%2 == 1 {
				from = other
			}
			done <- from.ask(t.Context(), t, requests[2].path, requests[2].body).status
		}()
	}
	for range 12 {
		if status := <-done; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most != 2 {
		t.Errorf("%d requests at the same time; want 2", most)
	}
	if b.Waited() == 0 {
		t.Error("the agent was charged for waiting")
	}
}
