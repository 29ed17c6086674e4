package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/cell"
)

// How long a provider may be silent when the model block does not say.
const (
	firstByteTimeout = 2 * time.Minute
	idleTimeout      = time.Minute
)

// silenceLimits are the longest waits for the first byte of an answer and, in
// the middle of it, for the next.
func silenceLimits(m *cell.Model) (first, idle time.Duration) {
	first, idle = firstByteTimeout, idleTimeout
	if m.FirstByteTimeout != nil {
		first = *m.FirstByteTimeout
	}
	if m.IdleTimeout != nil {
		idle = *m.IdleTimeout
	}
	return first, idle
}

// silentError says that a provider was silent for too long.
type silentError struct {
	begun bool // it had begun to answer
	limit time.Duration
}

// Error implements error.
func (e *silentError) Error() string {
	if e.begun {
		return fmt.Sprintf("it was silent for %s in the middle of its answer (raise idle_timeout of the model if it thinks for longer)", e.limit)
	}
	return fmt.Sprintf("it sent nothing for %s (raise first_byte_timeout of the model if it thinks for longer before it answers)", e.limit)
}

// watchdog ends a request to a provider that is silent for too long. The time
// of that silence counts as waiting, and not as the agent's.
type watchdog struct {
	s           *session
	cancel      context.CancelCauseFunc
	first, idle time.Duration

	mu    sync.Mutex
	timer *time.Timer
	last  time.Time // of the last sign of the provider
	begun bool      // a byte of the answer has come
	over  bool
}

// watchProvider begins to watch a request that is about to be sent. stop must
// be called when nothing of its answer is read any more.
func (s *session) watchProvider(first, idle time.Duration, cancel context.CancelCauseFunc) *watchdog {
	w := &watchdog{s: s, cancel: cancel, first: first, idle: idle, last: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched == nil {
		s.watched = map[*watchdog]struct{}{}
	}
	s.watched[w] = struct{}{}
	w.mu.Lock() // the timer may fire before it is kept
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(first, w.bark)
	return w
}

// bark ends the request. What it waited for in vain is counted before the
// request is no longer watched: a reader sees both or none.
func (w *watchdog) bark() {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return
	}
	limit := w.first
	if w.begun {
		limit = w.idle
	}
	w.s.wait.addSince(w.last)
	err := &silentError{begun: w.begun, limit: limit}
	w.mu.Unlock()
	w.cancel(err)
	w.stop()
}

// heard notes that bytes of the answer have come.
func (w *watchdog) heard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.begun, w.last = true, time.Now()
		w.timer.Reset(w.idle)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	w.over = true
	w.timer.Stop()
	w.mu.Unlock()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.watched, w)
}

// Silent implements models.Session.
func (s *session) Silent(since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watched {
		w.mu.Lock()
		silent := w.last.Before(since)
		w.mu.Unlock()
		if silent {
			return true
		}
	}
	return false
}

// watched is the body of an answer under a watchdog.
type watchedBody struct {
	io.ReadCloser

	ctx   context.Context //nolint:containedctx // of the request whose answer it is
	dog   *watchdog
	first []byte // what was read of it already
	err   error  // what ended that
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (n int, err error) {
	if len(b.first) > 0 {
		n = copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	if n, err = b.ReadCloser.Read(p); n > 0 {
		b.dog.heard()
	}
	return n, silentOr(b.ctx, err)
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	b.dog.stop()
	err := b.ReadCloser.Close()
	b.dog.cancel(nil)
	return err
}

// begin waits for the first bytes, so that an answer without any can be asked
// for again.
func (b *watchedBody) begin() error {
	buf := make([]byte, 4<<10)
	n, err := b.Read(buf)
	b.first, b.err = buf[:n], err
	if n > 0 || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// silentOr is the silence that ended a request, or else err.
func silentOr(ctx context.Context, err error) error {
	if silent, ok := errors.AsType[*silentError](context.Cause(ctx)); ok && err != nil {
		return silent
	}
	return err
}

// roundTrip asks the provider, and returns when its answer has begun.
func (x *exchange) roundTrip(ctx context.Context, req *http.Request) (*http.Response, error) {
	first, idle := silenceLimits(&x.e.up.model)
	return x.watched(ctx, first, idle, func(ctx context.Context) (*http.Response, error) {
		return x.e.up.carries.RoundTrip(req.WithContext(ctx))
	})
}

// watched sends a request under a watchdog, and returns when its answer has begun.
func (x *exchange) watched(ctx context.Context, first, idle time.Duration, send func(context.Context) (*http.Response, error)) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	sent := time.Now()
	dog := x.s.watchProvider(first, idle, cancel)
	resp, err := send(ctx)
	if err == nil {
		resp, err = fit(resp)
	}
	if err == nil {
		body := &watchedBody{ReadCloser: resp.Body, ctx: ctx, dog: dog}
		resp.Body = body
		if resp.StatusCode >= 300 {
			return resp, nil
		}
		if err = body.begin(); err == nil {
			return resp, nil
		}
		_ = resp.Body.Close()
	}
	err = silentOr(ctx, err)
	if context.Cause(ctx) == nil || errors.As(err, new(*silentError)) { // nothing else ended it
		x.s.wait.addSince(sent)
	}
	dog.stop()
	cancel(nil)
	return nil, err
}

// waits adds up the time in which at least one request waited.
type waits struct {
	mu    sync.Mutex
	now   int
	since time.Time
	spans []span // past spans; they do not overlap, the latest is last
	total time.Duration
}

// span is a time in which a request waited.
type span struct{ from, to time.Time }

// begin records that a request waits, and the returned function that it no
// longer does.
func (w *waits) begin() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now == 0 {
		w.since = time.Now()
	}
	w.now++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.now--; w.now == 0 {
			w.put(w.since)
		}
	}
}

// addSince counts time up to now that was spent waiting although it did not
// look so.
func (w *waits) addSince(from time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(from)
}

// put adds a span that ends now. What of it was counted before counts once.
func (w *waits) put(from time.Time) {
	to := time.Now()
	for len(w.spans) > 0 {
		last := w.spans[len(w.spans)-1]
		if last.to.Before(from) {
			break
		}
		if last.from.Before(from) {
			from = last.from
		}
		w.total -= last.to.Sub(last.from)
		w.spans = w.spans[:len(w.spans)-1]
	}
	w.spans = append(w.spans, span{from, to})
	w.total += to.Sub(from)
}

func (w *waits) sum() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now > 0 {
		w.put(w.since)
	}
	return w.total
}
