package gateway

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
)

// Requests and answers in progress are held in memory: a request twice, as
// received and as sent, an answer until it is recorded. These are the bounds,
// in bytes.
const (
	maxRequest    = 32 << 20  // of one request, decompressed, unless the model block sets another
	maxRequests   = 256 << 20 // for all requests of a session; more are refused
	maxTogether   = 512 << 20 // for requests of all sessions; more have to wait
	maxReply      = 64 << 20  // of one answer
	maxReplies    = 128 << 20 // for all answers of a session
	maxRepliesAll = 256 << 20 // for answers of all sessions
)

const (
	perRequest = 256 << 10 // for a request in addition to its bytes, including the beginning of its answer
	firstRoom  = 1 << 20   // for a request of unknown length, until the length is known
)

// maxDrained is how many more bytes of a request that is too large are read.
const maxDrained = 256 << 20

// slowest is how long the body of a request may take to arrive: meanwhile its
// memory is not available for others.
const slowest = 2 * time.Minute

var (
	errTooMany = fmt.Errorf("the requests of this session that are under way take more than %d MiB together: ask again when one of them is answered", maxRequests>>20)
	errNoRoom  = fmt.Errorf("the requests of all sessions take more than %d MiB together, and this one did not say how long it is: ask again: %w", maxTogether>>20, models.ErrRateLimited)
	// errTooMuch is the reason for cutting off an answer.
	errTooMuch = fmt.Errorf("its answer is larger than %d MiB", maxReply>>20)
	// errOwnReplies and errReplies are such reasons, too; the client causes the
	// first.
	errOwnReplies = fmt.Errorf("the answers of this session that are under way take more than %d MiB together", maxReplies>>20)
	errReplies    = fmt.Errorf("the answers of all sessions that are under way take more than %d MiB together: %w", maxRepliesAll>>20, models.ErrRateLimited)
)

// memory is the memory in use for all sessions of a gateway.
type memory struct {
	requests *semaphore.Weighted
	replies  atomic.Int64
}

func newMemory() *memory { return &memory{requests: semaphore.NewWeighted(maxTogether)} }

// held is the memory in use for one exchange.
type held struct {
	s        *session
	requests int64
	replies  int64
}

// take reserves n bytes for a request, and waits while other sessions use them.
func (h *held) take(ctx context.Context, n int64) error {
	if h.s.underWay.Add(n) > maxRequests {
		h.s.underWay.Add(-n)
		return errTooMany
	}
	all := h.s.g.memory.requests
	if !all.TryAcquire(n) {
		defer h.s.wait.begin()()
		if err := all.Acquire(ctx, n); err != nil {
			h.s.underWay.Add(-n)
			return err
		}
	}
	h.requests += n
	return nil
}

// more reserves n more bytes, or fails if they are not available: a holder of
// memory must not wait for others.
func (h *held) more(n int64) error {
	if h.s.underWay.Add(n) > maxRequests {
		h.s.underWay.Add(-n)
		return errTooMany
	}
	if !h.s.g.memory.requests.TryAcquire(n) {
		h.s.underWay.Add(-n)
		return errNoRoom
	}
	h.requests += n
	return nil
}

// less releases n bytes.
func (h *held) less(n int64) {
	h.requests -= n
	h.s.underWay.Add(-n)
	h.s.g.memory.requests.Release(n)
}

// reply reserves memory for an answer of n bytes so far. The memory for its
// beginning was reserved with the request.
func (h *held) reply(n int64) error {
	add := 2*n - perRequest - h.replies // a buffer grows to twice its size
	if add <= 0 {
		return nil
	}
	add += perRequest // in steps
	h.replies += add
	switch {
	case h.s.replies.Add(add) > maxReplies:
		h.s.g.memory.replies.Add(add)
		return errOwnReplies
	case h.s.g.memory.replies.Add(add) > maxRepliesAll:
		return errReplies
	default:
		return nil
	}
}

// leave releases everything.
func (h *held) leave() {
	h.less(h.requests)
	h.s.replies.Add(-h.replies)
	h.s.g.memory.replies.Add(-h.replies)
	h.replies = 0
}

// sizeError says that a request is larger than the gateway accepts.
type sizeError struct{ most int64 }

func (e *sizeError) Error() string {
	return fmt.Sprintf("the request is larger than %d MiB: max_request_mib of the model block says how large it may be", e.most>>20)
}

// mostOf returns the largest allowed size of a request for the model.
func mostOf(m *cell.Model) int64 {
	if m.MaxRequestMiB > 0 {
		return m.MaxRequestMiB << 20
	}
	return maxRequest
}
