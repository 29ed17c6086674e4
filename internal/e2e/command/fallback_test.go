package command

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// fades is a provider of Chat Completions that accepts one of two keys, answers
// once, and is then down.
type fades struct{ answers, refusedKey, down atomic.Int64 }

const (
	fadedKey = "e2e-canary-key-of-nobody"
	goodKey  = "e2e-canary-key-that-works"
)

// ServeHTTP implements http.Handler.
func (p *fades) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "Bearer "+goodKey:
		p.refusedKey.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	case p.answers.Add(1) > 1:
		p.down.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		sayChat(w, "first", "```bash\ntouch /app/done\n```")
	}
}

func sayChat(w http.ResponseWriter, model, text string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
		"model": model, "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text}}},
		"usage": map[string]any{"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
	})
}

// A key is refused, another serves, then the provider is down and the fallback
// serves. The record says which served, and at which price; the run is replayed
// without a provider.
func TestKeysAndFallbacksServe(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	first := &fades{}
	a := httptest.NewServer(first)
	defer a.Close()
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sayChat(w, "second", "```bash\necho TASK_IS_COMPLETE\n```")
	}))
	defer b.Close()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	const price = "  price {\n    input = %d\n    cached_input = %d\n    output = %d\n  }\n"
	model := func(more string) string {
		return "  provider = \"openai-chat\"\n  name = \"first\"\n  fallback = [model.second]\n" + fmt.Sprintf(price, 10, 10, 10) + more
	}
	second := "model \"second\" {\n  provider = \"openai-chat\"\n  name = \"second\"\n" + fmt.Sprintf(price, 1, 1, 1) + "%s\n}\n"
	write := func(m, more string) {
		modelled(t, dir, "  agent = agent.one\n  per_trial {\n    cost_usd = 5\n  }", m)
		f, err := os.OpenFile(filepath.Join(dir, "experiment.hcl"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = fmt.Fprintf(f, second, more)
			_ = f.Close()
		}
		e2etest.Must(t, err)
	}
	write(model(fmt.Sprintf("  api_keys = [secret(\"KEY_ONE\"), secret(\"KEY_TWO\")]\n  base_url = %q\n", a.URL+"/v1")), fmt.Sprintf("  base_url = %q\n", b.URL+"/v1"))
	cmd, out, stderr := tree.Command(t, dir, "run", "--json", "--require", "passed = planned")
	cmd.Env = append(cmd.Env, "KEY_ONE="+fadedKey, "KEY_TWO="+goodKey)
	r := ended(t, cmd, cmd.Run(), out, stderr)
	r.want(t, 0)
	live := answer[types.Run](t, r, "cli-run")
	if first.refusedKey.Load() != 1 || first.down.Load() != 1 {
		t.Errorf("the refused key was used %d times, the provider that was down asked %d times; want 1 and 1", first.refusedKey.Load(), first.down.Load())
	}
	checkServed(t, dir, live, true)
	err := filepath.WalkDir(live.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "e2e-canary") {
			t.Errorf("%s holds a key", path)
		}
		return err
	})
	e2etest.Must(t, err)
	a.Close()
	b.Close()

	// The experiment as it is, is replayed without a key.
	write(model("  api_keys = [secret(\"KEY_ONE\"), secret(\"KEY_TWO\")]\n"), "  api_key = secret(\"KEY_ONE\")\n")
	again := berth(t, dir, "run", "--json", "--require", "passed = planned", "--replay", live.Dir)
	again.want(t, 0)
	checkServed(t, dir, answer[types.Run](t, again, "cli-run"), false)
}

// checkServed checks what the last run says about who served its two requests.
func checkServed(t *testing.T, dir string, run types.Run, live bool) {
	t.Helper()
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	xs := exchangesOf(t, &show.Trials[0])
	if len(xs) != 2 || xs[0].Model != "first" || xs[0].FallbackFor != "" || xs[1].Model != "second" || xs[1].FallbackFor != "first" || live && (xs[0].Key != 2 || xs[1].Key != 0) {
		t.Errorf("exchanges %+v", xs)
	}
	us := e2etest.Result(t, show.Trials[0].Attempts[0].Dir).Usage
	if len(us) != 2 || *us[0].CostUSD != 0.011 || us[1].Model != "second" || us[1].FallbackFor != "first" || *us[1].CostUSD != 0.0011 {
		t.Errorf("usage %+v; want each at the price of the model that served", us)
	}
	if s := run.Summary; s.Fallback != 1 || s.CostUSD == nil || *s.CostUSD != 0.0121 {
		t.Errorf("summary: %d requests by fallbacks, cost %v", s.Fallback, s.CostUSD)
	}
	text := berth(t, dir, "show", "last", show.Trials[0].ID[:8])
	text.want(t, 0)
	wants := []string{"agent, second (fallback for first): 1 requests", "model_fallback"}
	if live {
		wants = append(wants, "key_refused", "does not accept key 1 of 2")
	}
	for _, want := range wants {
		if !strings.Contains(text.out, want) {
			t.Errorf("%q is not in\n%s", want, text.out)
		}
	}
	if all := berth(t, dir, "show", "last"); !strings.Contains(all.out, "(1 request served by a fallback model)") {
		t.Errorf("the tables do not say it:\n%s", all.out)
	}
}
