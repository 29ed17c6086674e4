package gateway

import (
	"sync"
	"time"
)

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
