package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/verifier"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	p := provide(t, replies(`{"usage":{"input_tokens":3,"output_tokens":4}}`))
	m := p.model("anthropic")
	m.Parameters = json.RawMessage(`{"temperature":0,"thinking":{"type":"enabled"}}`)
	m.AllowModels = []string{"m2"}
	b := start(t, m)
	b.ask(t.Context(), t, "/v1/messages", `{"model":"big-one","thinking":{"budget_tokens":5},"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"bash"}],"messages":[]}`)
	want := `{"model":"m1","thinking":{"budget_tokens":5,"type":"enabled"},"tools":[{"name":"bash"}],"messages":[],"temperature":0}`
	if p.bodies[0] != want {
		t.Errorf("sent %s\nwant %s", p.bodies[0], want)
	}
	b.ask(t.Context(), t, "/v1/messages", `{"model":"m2","messages":[]}`)
	if !strings.Contains(p.bodies[1], `"m2"`) {
		t.Errorf("an allowed model was replaced: %s", p.bodies[1])
	}
	codes := ""
	for _, f := range b.Findings() {
		codes += f.Code + " "
	}
	if codes != "other_model hosted_tool " {
		t.Errorf("findings %q", codes)
	}
	if p.heads[0].Get("X-Api-Key") != canaryKey || p.heads[0].Get("Authorization") != "" {
		t.Errorf("headers %v", p.heads[0])
	}
}

// An allowed model has its own price, or none if that is unknown, whatever the
// experiment's model costs.
func TestTheCostOfAnAllowedModel(t *testing.T) {
	t.Parallel()
	p := provide(t, replies(`{"usage":{"input_tokens":1000,"output_tokens":1000}}`))
	m := p.model("anthropic")
	m.Price, m.AllowModels = priced(1, 1, 1, 1), []string{"m2"}
	b := start(t, m)
	b.ask(t.Context(), t, "/v1/messages", `{"model":"m2","messages":[]}`)
	if x := b.last(t); x.Model != "m2" || x.CostUSD != nil || b.Usage()[0].CostUSD != nil {
		t.Errorf("written down %+v, usage %+v", x, b.Usage())
	}
	limit := 1.0
	if _, err := New(Options{Dialects: dialects.All, Dir: t.TempDir(), Models: []*cell.Model{&m}, Run: cell.Budget{CostUSD: &limit}}); err == nil || !strings.Contains(err.Error(), `of "m2" the price is not known`) {
		t.Errorf("a budget in USD with it: %v", err)
	}
}

// If a request requires a tool of the provider, the tool cannot be left out.
// The request is refused and not forwarded.
func TestToolsOfTheProviderAreNotForced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, body string
		refused          bool
	}{
		{"offered", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":"auto"}`, false},
		{"one of two", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":"required"}`, false},
		{"a function", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}}`, false},
		{"by type", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"web_search"}}`, true},
		{"the only one", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"}],"tool_choice":"required"}`, true},
		{"the only one allowed", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"web_search"}]}}`, true},
		{"allowed", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}}`, false},
		{"by name", "/v1/messages", `{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f"}],"tool_choice":{"type":"tool","name":"web_search"}}`, true},
		{"a function by name", "/v1/messages", `{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f"}],"tool_choice":{"type":"tool","name":"f"}}`, false},
		{"any of one", "/v1/messages", `{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}}`, true},
		{"chat", "/v1/chat/completions", `{"messages":[],"web_search_options":{},"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, scripted(t, "replies:\n  - {text: x}\n"))
			got := b.ask(t.Context(), t, tt.path, tt.body)
			if refused := got.status == http.StatusBadRequest && strings.Contains(got.body, "runs at the provider"); refused != tt.refused || !refused && got.status != http.StatusOK {
				t.Errorf("%d %s", got.status, got.body)
			}
			if f := b.Findings(); len(f) == 0 || !slices.ContainsFunc(f, func(f verifier.Finding) bool { return f.Code == "hosted_tool" }) {
				t.Errorf("findings %v", f)
			}
			open := start(t, scripted(t, "replies:\n  - {text: x}\n"), func(_ *cell.Model, _ *Options, s *models.Spec) { s.Hosted = true })
			if got = open.ask(t.Context(), t, tt.path, tt.body); got.status != http.StatusOK {
				t.Errorf("with a network: %d %s", got.status, got.body)
			}
		})
	}
}
