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
	"github.com/berth-eval/berth/plugins/verifier"
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

func TestARefusedKeyIsReplacedByAnother(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			refusedKeyIsReplaced(t, status)
		})
	}
}

func refusedKeyIsReplaced(t *testing.T, status int) {
	t.Helper()
	p, m := twoKeys(t, func(key string, w http.ResponseWriter) {
		if key == keyA {
			w.WriteHeader(status)
			return
		}
		answerChat(w)
	})
	b := start(t, m)
	for range 3 {
		if got := b.ask(t.Context(), t, requests[2].path, requests[2].body); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if asked := p.keysAsked(); !slices.Equal(asked, []string{keyA, keyB, keyB, keyB}) {
		t.Errorf("asked with %q; want the refused key once", asked)
	}
	if x := b.last(t); x.Key != 2 || x.FallbackFor != "" {
		t.Errorf("recorded %+v; want key 2", x)
	}
	if fs := b.Findings(); len(fs) != 1 || fs[0].Code != "key_refused" || strings.Contains(fs[0].Text, "canary") {
		t.Errorf("findings %+v", fs)
	}
	if b.Down() != nil || b.Refusal() != nil {
		t.Errorf("down %v, refusal %+v", b.Down(), b.Refusal())
	}
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

func TestSessionsAreSpreadOverKeys(t *testing.T) {
	t.Parallel()
	p, m := twoKeys(t, func(_ string, w http.ResponseWriter) { answerChat(w) })
	b := start(t, m)
	b.ask(t.Context(), t, requests[2].path, requests[2].body)
	second := b.open(t, b.spec)
	t.Cleanup(func() { _ = second.Close(context.Background()) })
	c := unixClient(second.Endpoints()["default"].Host)
	defer c.CloseIdleConnections()
	other := &bench{session: second, c: c, e: second.Endpoints()["default"]}
	other.ask(t.Context(), t, requests[2].path, requests[2].body)
	if asked := p.keysAsked(); !slices.Equal(asked, []string{keyA, keyB}) {
		t.Errorf("asked with %q", asked)
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

func TestAFallbackServesForAModelThatIsDown(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		for _, status := range []int{0, http.StatusServiceUnavailable, 529} { // 0: nobody listens there
			t.Run(r.dialect+" "+http.StatusText(status), func(t *testing.T) {
				t.Parallel()
				path, body := streaming(i)
				fallbackServes(t, r.dialect, path, body, status)
			})
		}
	}
}

func fallbackServes(t *testing.T, dialect, path, body string, status int) {
	t.Helper()
	var asked atomic.Int64
	first := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(status)
	})
	if status == 0 {
		first.Close()
	}
	second := provide(t, inPieces(recorded(t, dialect), 100))
	b := start(t, first.model(dialect), func(m *cell.Model, o *Options, _ *models.Spec) {
		o.RateLimit = ratelimit.Options{First: time.Minute} // nothing is asked again within the test
		m.Price, m.Parameters = priced(100, 100, 100, 100), []byte(`{"seed":1}`)
	}, withFallback(second, dialect, priced(1, 1, 1, 1)))
	for range 2 {
		if got := b.ask(t.Context(), t, path, body); got.status != http.StatusOK || !strings.Contains(got.body, "世界") {
			t.Fatalf("%d %v %s", got.status, got.err, got.body)
		}
	}
	if n := asked.Load(); status != 0 && n != 1 {
		t.Errorf("the model was asked %d times; want once, and not again while it pauses", n)
	}
	second.mu.Lock()
	sent := second.paths[0] + second.bodies[0]
	second.mu.Unlock()
	if !strings.Contains(sent, "m2") || strings.Contains(sent, "m1") || strings.Contains(sent, "seed") {
		t.Errorf("the fallback was sent %s; want its own name, and its own parameters", sent)
	}
	used := b.Usage()
	if len(used) != 1 || used[0].Model != "m2" || used[0].FallbackFor != "m1" || used[0].Requests != 2 || used[0].OutputTokens != 84 ||
		used[0].CostUSD == nil || *used[0].CostUSD > 0.1 {
		t.Errorf("usage %+v; want 2 requests of m2 at its own price", used)
	}
	if x := b.last(t); x.Model != "m2" || x.FallbackFor != "m1" || x.Asked != "" || x.Status != 200 {
		t.Errorf("recorded %+v", x)
	}
	if fs := b.Findings(); len(fs) == 0 || fs[0].Code != "model_fallback" || b.Down() != nil || !b.answered {
		t.Errorf("findings %+v, down %v", fs, b.Down())
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
	if got.status == http.StatusOK || len(second.keysAsked()) != 0 || b.Refusal() == nil {
		t.Errorf("%d %s, asked %q, refusal %+v", got.status, got.body, second.keysAsked(), b.Refusal())
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

// What a fallback served is replayed as the fallback's, at its price.
func TestAFallbackIsReplayed(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			whole := recorded(t, r.dialect)
			second := provide(t, inPieces(whole, 100))
			var up atomic.Bool
			first := provide(t, func(w http.ResponseWriter, q *http.Request) {
				if !up.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				inPieces(whole, 50)(w, q)
			})
			m := first.model(r.dialect)
			f := second.model(r.dialect)
			f.Label, f.Name, f.Price = "f", "m2", priced(1, 1, 1, 1)
			m.Fallback = []*cell.Model{&f}
			path, body := streaming(i)
			var live reply
			dir := recordedRun(t, m, func(b *bench) {
				live = b.ask(t.Context(), t, path, body)
				up.Store(true)
				time.Sleep(1100 * time.Millisecond) // the pause of a second that the provider asked for is over
				b.ask(t.Context(), t, path, strings.Replace(body, "hi", "ho", 1))
			})
			first.Close()
			second.Close()
			again := cell.Model{Provider: r.dialect, Name: "m1", Replay: dir, Fallback: []*cell.Model{{Provider: r.dialect, Name: "m2", Label: "f", Price: f.Price}}}
			b := start(t, again, func(_ *cell.Model, _ *Options, s *models.Spec) { s.Trial, s.Task, s.Repetition = "other", "x", 1 })
			if got := b.ask(t.Context(), t, path, body); got.body != live.body || got.status != http.StatusOK {
				t.Fatalf("%d %s\nwant %s", got.status, got.body, live.body)
			}
			if got := b.ask(t.Context(), t, path, strings.Replace(body, "hi", "ho", 1)); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			used := b.Usage()
			if len(used) != 2 || used[0].Model != "m1" || used[0].Requests != 1 || used[1].Model != "m2" || used[1].FallbackFor != "m1" || used[1].Requests != 1 || used[1].CostUSD == nil {
				t.Errorf("usage %+v", used)
			}
			again.Fallback = nil
			gone := start(t, again, func(_ *cell.Model, _ *Options, s *models.Spec) { s.Trial, s.Task, s.Repetition = "other", "x", 1 })
			if got := gone.ask(t.Context(), t, path, body); got.status == http.StatusOK || !strings.Contains(got.body, "recorded fallback") {
				t.Errorf("without the fallback: %d %s", got.status, got.body)
			}
		})
	}
}

// One session has so many requests in progress, whatever the agent sends.
func TestASessionDoesNotFloodTheProvider(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	full := make(chan struct{})
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == maxAtOnce {
			close(full)
		}
		<-full
		now.Add(-1)
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
	if most.Load() != maxAtOnce {
		t.Errorf("%d requests at the same time; want %d", most.Load(), maxAtOnce)
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

// A key is given up only if another one serves the request, and not if the
// provider then finds the request itself wrong.
func TestABadRequestProvesNoKeyRefused(t *testing.T) {
	t.Parallel()
	p, m := twoKeys(t, func(key string, w http.ResponseWriter) {
		if key == keyA {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	b := start(t, m)
	for range 2 {
		b.ask(t.Context(), t, requests[2].path, requests[2].body)
	}
	if n := len(slices.DeleteFunc(p.keysAsked(), func(k string) bool { return k != keyA })); n != 2 || slices.ContainsFunc(b.Findings(), func(f verifier.Finding) bool { return f.Code == "key_refused" }) {
		t.Errorf("key A was asked %d times, findings %+v; want it asked with each request", n, b.Findings())
	}
}

// A model may be the fallback of a replayed model and of one that is asked.
func TestTheFallbackOfAReplayedModelServesOthers(t *testing.T) {
	t.Parallel()
	first := provide(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	second := provide(t, func(w http.ResponseWriter, _ *http.Request) { answerChat(w) })
	dir := recordedRun(t, second.model("openai-chat"), func(b *bench) { b.ask(t.Context(), t, requests[2].path, requests[2].body) })
	f := second.model("openai-chat")
	f.Label, f.Name = "f", "m2"
	replayed := &cell.Model{Label: "replayed", Provider: "openai-chat", Name: "m1", Replay: dir, Fallback: []*cell.Model{&f}}
	b := start(t, first.model("openai-chat"), func(m *cell.Model, o *Options, _ *models.Spec) {
		m.Fallback, o.Models = []*cell.Model{&f}, []*cell.Model{replayed}
	})
	if got := b.ask(t.Context(), t, requests[2].path, requests[2].body); got.status != http.StatusOK || len(second.keysAsked()) != 2 {
		t.Errorf("%d %s, the fallback was asked %d times", got.status, got.body, len(second.keysAsked()))
	}
}
