package trial

import (
	"context"
	"time"

	"github.com/berth-eval/berth/core/trial/world"
	"github.com/berth-eval/berth/plugins/agent"
)

// waited is how long requests of the session waited for a provider.
func (s *session) waited() time.Duration {
	if s.models == nil {
		return 0
	}
	return s.models.Waited()
}

// unheard is whether a request that was under way at that time still waits for a
// sign of its provider.
func (s *session) unheard(since time.Time) bool {
	return s.models != nil && s.models.Silent(since)
}

// silencePoll is how often is looked whether a provider has answered.
const silencePoll = 50 * time.Millisecond

// watch returns why a turn must end, or nil when it has ended by itself. limit
// is for the time since begin less all that the session has ever waited for a
// provider: such time is not the agent's. When the time is over while a provider
// is silent, the turn ends with its first byte; if none comes, the time of that
// silence is not the agent's either.
func (s *session) watch(outside, turn context.Context, begin time.Time, limit time.Duration) error {
	var spent <-chan struct{}
	if s.models != nil {
		spent = s.models.Spent()
	}
	var lost <-chan struct{}
	if s.role != agent.RoleUser {
		lost = s.a.w.Lost()
	}
	var over time.Time // since when there is no time left
	for {
		left := limit + s.waited() - time.Since(begin)
		switch {
		case left > 0:
			over = time.Time{}
		case over.IsZero():
			over = time.Now()
			left = 0
		case !s.unheard(over):
			return errTurnTime
		default: // whether that time is the agent's is not known yet
			left = silencePoll
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-spent:
			t.Stop()
			return errBudget
		case <-lost:
			t.Stop()
			return world.ErrLost
		case <-outside.Done():
			t.Stop()
			return context.Cause(outside)
		case <-turn.Done():
			t.Stop()
			return nil
		}
	}
}
