package e2etest

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
)

// Provider is a provider of models that requires a key. Its model runs one command
// in its own turn, and then says that the task is complete.
type Provider struct {
	Key, Command string

	Served  atomic.Int64 // requests that were answered
	Strange atomic.Int64 // requests without the key
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+p.Key {
		p.Strange.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var q struct{ Messages []struct{ Role string } }
	_ = json.NewDecoder(r.Body).Decode(&q) // without messages it is the first turn
	say := "```bash\n" + p.Command + "\n```"
	for _, m := range q.Messages {
		if m.Role == "assistant" {
			say = "```bash\necho TASK_IS_COMPLETE\n```"
		}
	}
	p.Served.Add(1)
	Say(w, "m1", say)
}

// Say writes the reply of a model in Chat Completions.
func Say(w http.ResponseWriter, model, text string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
		"model": model, "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text}}},
		"usage": map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
	})
}
