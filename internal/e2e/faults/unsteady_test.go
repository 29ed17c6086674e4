package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// What the provider's answers use, and cost at the prices of the experiment.
const (
	tokensIn, tokensOut = 100, 10
)

// unsteady is a provider that refuses, limits, drops and breaks off some of the
// requests. Its model solves the smallest task in three requests, and goes on for
// some more in some of the conversations.
type unsteady struct {
	*httptest.Server

	mu      sync.Mutex
	asked   int
	served  int64 // whole answers
	refused map[string]int
}

func newUnsteady(t *testing.T) *unsteady {
	t.Helper()
	s := &unsteady{refused: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *unsteady) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Contains(body, []byte("Say yes.")) { // by which the gateway finds out whose fault a refusal is
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.asked++
	w.Header().Set("Retry-After", "0.02")
	for _, fault := range []struct{ every, first, status int }{
		{7, 3, http.StatusServiceUnavailable}, {11, 5, http.StatusTooManyRequests}, {17, 9, http.StatusBadRequest},
	} {
		if s.asked%fault.every == fault.first {
			s.refused[strconv.Itoa(fault.status)]++
			w.WriteHeader(fault.status)
			return
		}
	}
	if s.asked%29 == 20 {
		s.refused["dropped"]++
		panic(http.ErrAbortHandler)
	}
	answer := s.answer(body)
	w.Header().Set("Content-Type", "application/json")
	if s.asked%31 == 12 {
		s.refused["broken off"]++
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer[:len(answer)/2])
		panic(http.ErrAbortHandler)
	}
	s.served++
	_, _ = w.Write(answer) // the client may be gone
}

func (s *unsteady) answer(body []byte) []byte {
	var q struct{ Messages []struct{ Role string } }
	_ = json.Unmarshal(body, &q) // without messages it is the first turn
	say := "```bash\ntouch /app/done\n```"
	if n := len(q.Messages); n > 4 && (n > 12 || s.asked%4 != 0) {
		say = "```bash\necho TASK_IS_COMPLETE\n```"
	}
	answer, _ := json.Marshal(map[string]any{ // it is always JSON
		"model": "m1", "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": say}}},
		"usage": map[string]any{"prompt_tokens": tokensIn, "completion_tokens": tokensOut, "total_tokens": tokensIn + tokensOut},
	})
	return answer
}

// experiment writes an experiment of two cells whose models are this provider,
// with attempts that may be retried, and these budgets in requests.
func (s *unsteady) experiment(p *place, repeat, run, cell int) {
	p.test.Helper()
	p.experiment(fmt.Sprintf(`repeat = %d
  matrix {
    agent = [agent.a, agent.b]
  }
  model = model.m
  limits {
    in_flight = 4
    requests  = %d
  }
  per_cell {
    requests = %d
  }
  per_trial {
    requests = 4
  }
  retry {
    max  = 8
    on   = ["model_error", "rate_limited", "environment_error", "plugin_crashed"]
    wait = "10ms"
  }`, repeat, run, cell), fmt.Sprintf(`agent "a" {
  plugin = "minisweagent"
}
agent "b" {
  plugin = "minisweagent"
  env    = { OTHER = "1" }
}
model "m" {
  provider = "openai-chat"
  name     = "m1"
  base_url = "%s/v1"
  price {
    input  = 1
    output = 2
  }
}
`, s.URL))
}
