package gateway

import (
	"context"
	"fmt"
	"time"
)

// Requests in progress are held in memory twice: as received and as sent. These are
// the bounds, in bytes.
const (
	maxRequest  = 64 << 20  // of one request, decompressed
	maxRequests = 256 << 20 // for all requests of a session; more have to wait
	maxTogether = 512 << 20 // for requests of all sessions; more have to wait
	maxReply    = 64 << 20  // of one answer
	perRequest  = 256 << 10 // for a request in addition to its bytes, including the beginning of its answer
	maxDrained  = 256 << 20 // of a request that is too large, and is read to its end
)

// slowest is how long the body of a request may take to arrive: meanwhile its
// memory is not available for others.
const slowest = 2 * time.Minute

// errTooMuch is the reason for cutting off an answer.
var errTooMuch = fmt.Errorf("its answer is larger than %d MiB", maxReply>>20)

// hold reserves memory for a request of n bytes, and waits while other requests use
// it. The wait for those of other sessions is not charged to the agent.
func (x *exchange) hold(ctx context.Context, n int64) error {
	n = 2*n + perRequest
	if err := x.s.memory.Acquire(ctx, n); err != nil {
		return err
	}
	defer x.s.wait.begin()()
	if err := x.s.g.memory.Acquire(ctx, n); err != nil {
		x.s.memory.Release(n)
		return err
	}
	x.held = n
	return nil
}

// release releases n bytes of the memory of the request.
func (x *exchange) release(n int64) {
	x.held -= n
	x.s.memory.Release(n)
	x.s.g.memory.Release(n)
}

// errTooLarge is the reason for refusing a request.
var errTooLarge = fmt.Errorf("the request is larger than %d MiB", maxRequest>>20)
