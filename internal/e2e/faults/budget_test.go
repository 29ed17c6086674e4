package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// What a run had spent when it was killed is spent when it is resumed, also by
// attempts that did not live to say so.
func TestABudgetIsAsSpentAfterAKill(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const (
		most     = 8 // requests of the cell
		inFlight = 2
	)
	var served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Messages []struct{ Role string } }
		_ = json.NewDecoder(r.Body).Decode(&q) // without messages it is the first turn
		served.Add(1)
		say := "```bash\ntouch /app/done; sleep 0.3\n```"
		if len(q.Messages) > 4 {
			say = "```bash\necho TASK_IS_COMPLETE\n```"
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
			"model": "m1", "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": say}}},
			"usage": map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
		})
	}))
	defer s.Close()
	p.task("spends", "", solveTiny, testTiny)
	p.experiment(fmt.Sprintf("agent = agent.loop\n  model = model.m\n  repeat = 8\n  per_cell {\n    requests = %d\n  }\n  limits {\n    in_flight = %d\n  }", most, inFlight),
		fmt.Sprintf("agent \"loop\" {\n  plugin = \"minisweagent\"\n}\nmodel \"m\" {\n  provider = \"openai-chat\"\n  name = \"m1\"\n  base_url = \"%s/v1\"\n}\n", s.URL))
	first := p.start(nil, "run", ".", "--no-live")
	poll(t, "five requests", first, func() bool { return served.Load() >= 5 })
	first.signal(syscall.SIGKILL)
	first.wait()
	p.berth("resume", p.run(), "--no-live").want(t, 0)
	show := p.settled(p.run())
	// Requests that were under way at the kill are in no record.
	if n := served.Load(); n < most || n > most+inFlight {
		t.Errorf("%d requests were served of %d, and at most %d could be lost", n, most, inFlight)
	}
	if o := show.Summary.Outcomes; o[record.Passed]+o[record.Failed] != 8 || o[record.Failed] == 0 {
		t.Errorf("outcomes %v", o)
	}
}
