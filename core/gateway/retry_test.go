package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
)

// patient retries quickly and without end.
func patient(_ *cell.Model, o *Options, _ *models.Spec) {
	o.RateLimit = ratelimit.Options{First: 5 * time.Millisecond, Longest: 20 * time.Millisecond}
	o.Silence = 3 * time.Millisecond
}

// If a provider refuses for a while, the agent does not see it and its time
// does not count.
func TestAProviderThatAsksForPatienceIsWaitedFor(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			whole := recorded(t, r.dialect)
			var asked atomic.Int64
			p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
				switch n := asked.Add(1); n {
				case 1, 3:
					w.WriteHeader(http.StatusTooManyRequests)
				case 2:
					w.WriteHeader(529)
				case 4:
					panic(http.ErrAbortHandler)
				default:
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = w.Write(whole)
				}
			})
			b := start(t, p.model(r.dialect), patient, func(_ *cell.Model, o *Options, _ *models.Spec) {
				o.RateLimit.First, o.RateLimit.Longest = 100*time.Millisecond, 400*time.Millisecond // time for signs of life
			})
			path, body := streaming(i)
			got := b.ask(t.Context(), t, path, strings.Replace(body, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1))
			if got.status != http.StatusOK || got.err != nil || !strings.HasSuffix(got.body, string(whole)) {
				t.Fatalf("%d %v %s", got.status, got.err, got.body)
			}
			if len(got.body) == len(whole) {
				t.Error("no sign of life came while the request waited")
			}
			x := b.last(t)
			if x.Tries != 4 || x.Waited < 10*time.Millisecond || b.Waited() < 10*time.Millisecond || b.Usage()[0].Requests != 1 || b.State().Down != nil {
				t.Errorf("written down %+v, waited %s, usage %+v, down %v", x, b.Waited(), b.Usage(), b.State().Down)
			}
		})
	}
}

// Keep-alive bytes are also sent before a response in one piece. An error after
// them can only break off the response; the client gets the error when it sends
// the request again.
func TestSignsOfLifeBeforeAWholeAnswer(t *testing.T) {
	t.Parallel()
	slowly := func(_ *cell.Model, o *Options, _ *models.Spec) {
		o.RateLimit, o.Silence = ratelimit.Options{First: time.Second}, time.Millisecond
	}
	array := requests[3]
	array.path = "/v1beta/models/m1:streamGenerateContent"
	for _, r := range append([]struct{ dialect, path, body, streamPath, streamBody string }{array}, requests...) {
		t.Run(r.dialect+" "+r.path, func(t *testing.T) {
			t.Parallel()
			b := start(t, provide(t, waitsAnswersWaitsRefuses()).model(r.dialect), slowly)
			got := b.ask(t.Context(), t, r.path, r.body)
			if got.status != http.StatusOK || got.err != nil || strings.TrimLeft(got.body, "\n") != `{"usage":{}}` || got.body[0] != '\n' || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %v %q", got.status, got.err, got.body)
			}
			refusedLate(t, b, r.path, r.body)
		})
	}
}

func refusedLate(t *testing.T, b *bench, path, body string) {
	t.Helper()
	got := b.ask(t.Context(), t, path, body)
	if !strings.Contains(path, "alt=") && strings.Contains(path, ":stream") {
		if !strings.Contains(got.body, `[{"error":`) || !json.Valid([]byte(got.body)) {
			t.Errorf("the array is %q", got.body)
		}
		return
	}
	if got.err == nil {
		t.Errorf("an error passed for an answer: %d %q", got.status, got.body)
	}
	if got = b.ask(t.Context(), t, path, body); got.status != http.StatusBadRequest || !strings.Contains(got.body, "not so") {
		t.Errorf("%d %v %q", got.status, got.err, got.body)
	}
	if err := b.Revoke(t.Context()); err != nil {
		t.Error(err)
	}
	if x := b.lines[1]; x.Broken != string(byGateway) || x.Status != http.StatusBadRequest || b.Usage()[0].Requests != 1 {
		t.Errorf("written down %+v, used %+v", x, b.Usage())
	}
}

func waitsAnswersWaitsRefuses() http.HandlerFunc {
	var asked atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch asked.Add(1) {
		case 1, 3:
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			_, _ = io.WriteString(w, `{"usage":{}}`)
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"not so"}}`)
		}
	}
}

// Sessions share what is known about a provider: after it has refused one, the
// others send fewer requests.
func TestAllSessionsPaceTogether(t *testing.T) {
	t.Parallel()
	var under, most, refused atomic.Int64
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		defer under.Add(-1)
		if n := under.Add(1); n > 3 {
			refused.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		most.Store(max(most.Load(), under.Load()))
		time.Sleep(2 * time.Millisecond) // so that requests overlap
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"input_tokens":3,"output_tokens":4}}`)
	})
	b := start(t, p.model("anthropic"), patient)
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for range 5 {
				if got := b.ask(t.Context(), t, requests[0].path, requests[0].body); got.status != http.StatusOK {
					t.Errorf("%d %v", got.status, got.err)
				}
			}
		})
	}
	wg.Wait()
	if u := b.Usage()[0]; u.Requests != 120 || refused.Load() == 0 || refused.Load() > 120 {
		t.Errorf("%d requests, %d refused", u.Requests, refused.Load())
	}
}

// A provider that asks to wait for longer than it is asked again ends the turn at
// once, and nobody else asks it meanwhile.
func TestAProviderThatAsksToWaitForDays(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.Header().Set("Retry-After", "274579")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `{"error":{"message":"the monthly limit of `+canaryKey+` is reached"}}`)
			})
			b := start(t, p.model(r.dialect), func(_ *cell.Model, o *Options, _ *models.Spec) { o.RateLimit = ratelimit.Options{} })
			path, body := streaming(i)
			got := b.ask(t.Context(), t, path, body)
			if got.status != http.StatusTooManyRequests || got.header.Get("X-Should-Retry") != "false" || !strings.Contains(got.body, "asks to wait 3 d 4 h") {
				t.Errorf("%d %v %s", got.status, got.header, got.body)
			}
			<-b.Spent()
			if down := b.State().Down; !errors.Is(down, models.ErrRateLimited) || !strings.Contains(down.Error(), "the monthly limit of [secret] is reached, and it asks to wait 3 d 4 h") {
				t.Errorf("down: %v", down)
			}
			if why := b.State().Refusal; why.Scope != "" || !why.Provider || !errors.Is(why.Err, models.ErrRateLimited) {
				t.Errorf("the turn ended with %+v", why)
			}
			other := b.open(t, b.spec)
			defer func() { _ = other.Close(t.Context()) }()
			b.e, b.c = other.Endpoints()["default"], unixClient(other.Endpoints()["default"].Host)
			if got = b.ask(t.Context(), t, path, body); got.status != http.StatusTooManyRequests || asked.Load() != 1 || !errors.Is(other.State().Down, models.ErrRateLimited) {
				t.Errorf("%d after %d requests, down %v", got.status, asked.Load(), other.State().Down)
			}
			b.c.CloseIdleConnections()
		})
	}
}

// impatient is a model whose provider may be silent only for a moment.
func impatient(limit time.Duration) setting {
	return func(m *cell.Model, _ *Options, _ *models.Spec) {
		m.FirstByteTimeout, m.IdleTimeout = &limit, &limit
	}
}

// If a provider accepts a request and sends nothing, with or without a status,
// the request is sent again. The time does not count as the agent's.
func TestAProviderThatHangsIsAskedAgain(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			whole := recorded(t, r.dialect)
			var asked atomic.Int64
			p := provide(t, func(w http.ResponseWriter, r *http.Request) {
				switch asked.Add(1) {
				case 1:
					<-r.Context().Done()
				case 2:
					w.Header().Set("Content-Type", "text/event-stream")
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				default:
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = w.Write(whole)
				}
			})
			b := start(t, p.model(r.dialect), patient, impatient(300*time.Millisecond))
			path, body := streaming(i)
			got := b.ask(t.Context(), t, path, strings.Replace(body, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1))
			if got.status != http.StatusOK || got.err != nil || !strings.HasSuffix(got.body, string(whole)) {
				t.Fatalf("%d %v %s", got.status, got.err, got.body)
			}
			if x := b.last(t); x.Tries != 2 || b.Waited() < 600*time.Millisecond || b.Usage()[0].Requests != 1 || b.State().Down != nil {
				t.Errorf("written down %+v, waited %s, usage %+v, down %v", x, b.Waited(), b.Usage(), b.State().Down)
			}
		})
	}
}

// If a provider never responds, the gateway gives up and reports it as down.
func TestAProviderThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	p := provide(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	b := start(t, p.model("anthropic"), impatient(100*time.Millisecond))
	got := b.ask(t.Context(), t, requests[0].path, requests[0].body)
	if got.status != http.StatusBadGateway {
		t.Errorf("%d %v %s", got.status, got.err, got.body)
	}
	if down := b.State().Down; down == nil || !strings.Contains(down.Error(), "it sent nothing for 100ms (raise first_byte_timeout of the model ") || b.Waited() < 100*time.Millisecond {
		t.Errorf("down %v, waited %s", down, b.Waited())
	}
	if len(b.Usage()) != 0 {
		t.Errorf("usage %+v", b.Usage())
	}
}

// A stream that stalls is broken off. The time of its silence does not count as
// the agent's.
func TestAStreamThatStallsIsBrokenOff(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			whole := recorded(t, r.dialect)
			begun := make(chan struct{})
			p := provide(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write(whole[:len(whole)/2])
				_ = http.NewResponseController(w).Flush()
				close(begun)
				<-r.Context().Done()
			})
			b := start(t, p.model(r.dialect), impatient(400*time.Millisecond))
			silent, ended := make(chan bool, 1), make(chan struct{})
			go func() {
				<-begun
				for !b.Silent(time.Now()) {
					select {
					case <-ended:
						silent <- false
						return
					case <-time.After(time.Millisecond):
					}
				}
				silent <- true
			}()
			path, body := streaming(i)
			got := b.ask(t.Context(), t, path, body)
			close(ended)
			if got.err == nil {
				t.Errorf("the client took it for the end: %d %q", got.status, got.body)
			}
			x := b.last(t)
			if down := b.State().Down; x.Broken != "provider" || down == nil || !strings.Contains(down.Error(), "silent for 400ms in the middle of its answer") {
				t.Errorf("written down %+v, down %v", x, down)
			}
			if !<-silent || b.Silent(time.Now()) || b.Waited() < 400*time.Millisecond {
				t.Errorf("silent now %v, waited %s", b.Silent(time.Now()), b.Waited())
			}
		})
	}
}

// If a client gives up on a provider that has failed, the session says so, and says
// if it was the rate limit.
func TestAClientThatGivesUpOnAProviderThatFails(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		var asked atomic.Int64
		gone := make(chan struct{})
		p := provide(t, func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				w.WriteHeader(status)
				return
			}
			close(gone)
			<-r.Context().Done()
		})
		b := start(t, p.model("anthropic"), patient)
		ctx, cancel := contextUntil(t, gone)
		if got := b.ask(ctx, t, requests[0].path, requests[0].body); got.err == nil {
			t.Errorf("answered with %d", got.status)
		}
		cancel()
		x, left := b.last(t), b.State().GaveUp
		if x.Error != "the client went away" || b.State().Down != nil || left == nil || !strings.Contains(left.Error(), fmt.Sprintf("status %d", status)) ||
			errors.Is(left, models.ErrRateLimited) != (status == http.StatusTooManyRequests) {
			t.Errorf("written down %+v, down %v, gave up %v", x, b.State().Down, left)
		}
		err := b.Revoke(t.Context())
		if b.Allow(t.Context()); err != nil || b.State().GaveUp != nil {
			t.Errorf("the next turn begins with %v, %v", err, b.State().GaveUp)
		}
	}
}

// Waiting times that overlap count once.
func TestWaitsAreAUnion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // whose clock stands still
		var w waits
		now := time.Now()
		w.addSince(now.Add(-time.Second))
		w.addSince(now.Add(-10 * time.Second))
		w.addSince(now.Add(-5 * time.Second))
		end := w.begin()
		if got := w.sum(); got != 10*time.Second {
			t.Errorf("waited %s; want 10 s", got)
		}
		end()
	})
}
