package faults

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// relayKey is the key of the model, which only the coordinator has.
const relayKey = "key-of-the-relay"

// keyed starts a coordinator that has the key.
func (p *place) keyed(n int, args ...string) *session {
	p.test.Helper()
	s := p.start([]string{"E2E_RELAY_KEY=" + relayKey}, args...)
	p.follows(s, n)
	return s
}

// The coordinator is killed while pilots wait for answers through it, and another one
// takes over, at another port and with another certificate. Requests wait for it, and
// every attempt goes on: none is made twice, and none fails.
func TestRequestsWaitForTheNextCoordinator(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	asked, answers := atomic.Int64{}, make(chan struct{})
	provider := newSolver(t)
	provider.key, provider.before = relayKey, func(ctx context.Context) error {
		if asked.Add(1) <= 4 { // those that the first coordinator sends are never answered
			<-ctx.Done()
			return ctx.Err()
		}
		select {
		case <-answers:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.task("relayed", "", e2etest.SolveTiny, e2etest.TestTiny)
	p.piloted("agent = agent.loop\n  model = model.m\n  repeat = 4\n  limits {\n    requests = 40\n  }", fmt.Sprintf(`lost_after = "30s"
}
agent "loop" {
  plugin = "minisweagent"
}
model "m" {
  provider = "openai-chat"
  name     = "m1"
  base_url = "%s/v1"
  api_key  = secret("E2E_RELAY_KEY")`, provider.URL))
	c := p.keyed(1, "run", ".")
	dir := p.run()
	pilots := []*session{p.pilot(dir, 2), p.pilot(dir, 2)}
	poll(t, "four requests are under way", c, func() bool { return asked.Load() == 4 })
	c.signal(syscall.SIGKILL)
	c.wait()
	close(answers)
	p.keyed(2, "resume", dir).wait().want(t, 0)
	for _, s := range pilots {
		s.wait().want(t, 0)
	}
	results, none := attemptsOf(t, dir)
	for at, r := range results {
		if r.Outcome != record.Passed {
			t.Errorf("%s: %s, %+v", at, r.Outcome, r.Error)
		}
	}
	if len(results) != 4 || none != 0 || provider.served.Load() != 12 {
		t.Errorf("%d attempts with a result and %d without, %d requests were answered", len(results), none, provider.served.Load())
	}
	p.settled(dir)
	p.vacated()
}
