package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
)

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
