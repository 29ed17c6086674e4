package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// solver is a provider whose model solves the smallest task in three requests.
type solver struct {
	*httptest.Server

	key    string                          // that it requires
	before func(ctx context.Context) error // before it answers
	served atomic.Int64
}

func newSolver(t *testing.T) *solver {
	t.Helper()
	s := &solver{before: func(context.Context) error { return nil }}
	s.Server = httptest.NewServer(s.handler())
	t.Cleanup(s.Close)
	return s
}

func (s *solver) handler() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Messages []struct{ Role string } }
		_ = json.NewDecoder(r.Body).Decode(&q) // without messages it is the first turn
		if s.key != "" && r.Header.Get("Authorization") != "Bearer "+s.key {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if s.before(r.Context()) != nil {
			return
		}
		s.served.Add(1)
		say := "```bash\ntouch /app/done; sleep 0.3\n```"
		if len(q.Messages) > 4 {
			say = "```bash\necho TASK_IS_COMPLETE\n```"
		}
		e2etest.Say(w, "m1", say)
	}
}

// experiment returns an experiment whose agent uses this provider. limits are
// further lines of the experiment block.
func (s *solver) experiment(p *place, limits string) {
	p.test.Helper()
	p.experiment("agent = agent.loop\n  model = model.m\n  "+limits,
		fmt.Sprintf("agent \"loop\" {\n  plugin = \"minisweagent\"\n}\nmodel \"m\" {\n  provider = \"openai-chat\"\n  name = \"m1\"\n  base_url = \"%s/v1\"\n}\n", s.URL))
}

// After a kill and a resume, the spending from before the kill counts, also
// that of attempts that were killed before they recorded it.
func TestABudgetIsAsSpentAfterAKill(t *testing.T) {
	t.Parallel()
	const (
		most     = 8 // requests of the cell
		inFlight = 2
	)
	p, s := newPlace(t), newSolver(t)
	p.task("spends", "", e2etest.SolveTiny, e2etest.TestTiny)
	s.experiment(p, fmt.Sprintf("repeat = 8\n  per_cell {\n    requests = %d\n  }\n  limits {\n    in_flight = %d\n  }", most, inFlight))
	first := p.start(nil, "run", ".")
	poll(t, "five requests", first, func() bool { return s.served.Load() >= 5 })
	first.signal(syscall.SIGKILL)
	first.wait()
	p.berth("resume", p.run()).want(t, 3)
	show := p.settled(p.run())
	// Requests that were under way at the kill are in no record.
	n := s.served.Load()
	if n < most || n > most+inFlight {
		t.Errorf("%d requests were served of %d, and at most %d could be lost", n, most, inFlight)
	}
	if used := show.Summary.Tokens / 110; used < n-inFlight || used > n {
		t.Errorf("the summary counts %d requests of %d", used, n)
	}
	if o := show.Summary.Outcomes; o[record.Passed]+o[record.NotRun] != 8 || o[record.NotRun] == 0 {
		t.Errorf("outcomes %v", o)
	}
	p.clean()
}
