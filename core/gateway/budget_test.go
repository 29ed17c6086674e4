package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/dialect"
)

func TestBudgetsOfAnAttempt(t *testing.T) {
	t.Parallel()
	two, hundred := int64(2), int64(100)
	for name, budget := range map[string]cell.Budget{"requests": {Requests: &two}, "tokens": {Tokens: &hundred}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, scripted(t, "replies:\n  - {text: x, usage: {input: 20, output: 20}}\n"),
				func(_ *cell.Model, _ *Options, s *models.Spec) { s.Budget = budget })
			var codes []int
			for range 3 {
				codes = append(codes, b.ask(t.Context(), t, "/v1/messages", `{"model":"m1","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}`).status)
			}
			if fmt.Sprint(codes) != "[200 200 403]" {
				t.Errorf("statuses %v", codes)
			}
			got := b.ask(t.Context(), t, "/v1/messages", `{"model":"m1","max_tokens":20,"messages":[]}`)
			if !strings.Contains(got.body, "billing_error") || !strings.Contains(got.body, "budget of the attempt") {
				t.Errorf("said %s", got.body)
			}
		})
	}
}

func TestABudgetInUSDNeedsAPrice(t *testing.T) {
	t.Parallel()
	key := cell.Plain("k")
	m := &cell.Model{Label: "m", Provider: "anthropic", Name: "nobody-knows", APIKey: &key}
	one := 1.0
	budget := Cell{Name: "agent=a", Models: []*cell.Model{m}, Limit: cell.Budget{CostUSD: &one}}
	for name, o := range map[string]Options{"run": {Run: cell.Budget{CostUSD: &one}}, "cell agent=a": {Cells: []Cell{budget}}} {
		o.Dir, o.Models, o.Dialects = t.TempDir(), []*cell.Model{m}, dialects.All
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "price is not known") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A verifier uses its own budget alone, in all its calls.
func TestEachVerifierHasItsOwnBudget(t *testing.T) {
	t.Parallel()
	one := int64(1)
	judge := func(name string) setting {
		return func(_ *cell.Model, _ *Options, s *models.Spec) {
			s.Role, s.Verifier, s.Budget.Requests = "judge", name, &one
		}
	}
	b := start(t, scripted(t, "replies:\n  - {text: x, usage: {input: 20, output: 20}}\n"), judge("first"))
	const hi = `{"model":"m1","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}`
	for i, tt := range []struct {
		verifier string
		status   int
	}{{"first", 200}, {"second", 200}, {"first", 403}, {"second", 403}} {
		spec := models.Spec{Trial: "t1", Attempt: 1, Role: "judge", Verifier: tt.verifier, Budget: cell.Budget{Requests: &one}, Models: b.spec.Models}
		s := b.open(t, spec)
		again := &bench{session: s, e: s.Endpoints()["default"], c: unixClient(s.Endpoints()["default"].Host)}
		got := again.ask(t.Context(), t, "/v1/messages", hi)
		if got.status != tt.status || tt.status == 403 && !strings.Contains(got.body, fmt.Sprintf(`budget of the attempt's judge \"%s\" is used up: 1 of 1 requests`, tt.verifier)) {
			t.Errorf("request %d, of verifier %s: status %d, %s", i, tt.verifier, got.status, got.body)
		}
		again.c.CloseIdleConnections()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestARefusalSaysWhoseBudgetItWas(t *testing.T) {
	t.Parallel()
	one, none, small := int64(1), int64(0), 0.001
	perCell := func(l cell.Budget) setting {
		return func(_ *cell.Model, o *Options, _ *models.Spec) {
			o.Cells = []Cell{{Name: "agent=a", Trials: []string{"t1"}, Limit: l}}
		}
	}
	for _, tt := range []struct {
		name  string
		set   setting
		scope record.Scope
		first bool
		says  string
	}{
		{"run", func(_ *cell.Model, o *Options, _ *models.Spec) { o.Run.Requests = &one }, record.ScopeRun, false, "budget of the run is used up: 1 of 1 requests"},
		{"cell", perCell(cell.Budget{Requests: &one}), record.ScopeCell, false, "budget of the cell agent=a is used up"},
		{"attempt", func(_ *cell.Model, _ *Options, s *models.Spec) { s.Budget.Requests = &one }, "", false, "budget of the attempt is used up"},
		{"run, at once", func(_ *cell.Model, o *Options, _ *models.Spec) { o.Run.Requests = &none }, record.ScopeRun, true, "budget of the run, 0 requests, is too small"},
		{"cell, at once", perCell(cell.Budget{CostUSD: &small}), record.ScopeCell, true, "20 of output"},
		{"attempt, at once", func(_ *cell.Model, _ *Options, s *models.Spec) { s.Budget.CostUSD = &small }, "", true, "0.0010 USD, is too small"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := scripted(t, "replies:\n  - {text: x, usage: {input: 20, output: 20}}\n")
			m.Price = priced(1000, 1000, 1000, 1000)
			b := start(t, m, tt.set)
			var got reply
			for range 2 {
				got = b.ask(t.Context(), t, "/v1/messages", `{"model":"m1","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}`)
			}
			r := b.State().Refusal
			if got.status != 403 || r == nil || r.Scope != tt.scope || r.First != tt.first || !strings.Contains(r.Err.Error(), tt.says) || !strings.Contains(got.body, r.Err.Error()) {
				t.Errorf("status %d, %s, refusal %+v", got.status, got.body, r)
			}
			if found := len(b.Findings()) == 1 && b.Findings()[0].Code == "budget"; found != (tt.scope == "") {
				t.Errorf("findings %+v", b.Findings())
			}
		})
	}
}

// A different request of the same length as the last one is not mistaken for
// it: long runs of spaces are few tokens.
func TestAnotherRequestOfTheSameLengthHasNoRoom(t *testing.T) {
	t.Parallel()
	m := scripted(t, "replies:\n  - {text: x, usage: {input: 50, output: 1}}\n  - {text: x, usage: {input: 60, output: 1}}\n")
	limit := int64(120_000)
	b := start(t, m, func(_ *cell.Model, o *Options, _ *models.Spec) { o.Run = cell.Budget{Tokens: &limit} })
	ask := func(text string) int {
		return b.ask(t.Context(), t, "/v1/messages", `{"max_tokens":10,"messages":[{"role":"user","content":"`+text+`"}]}`).status
	}
	spaces := strings.Repeat(" ", 110_000)
	if got := ask(spaces); got != http.StatusOK {
		t.Fatalf("the first: %d", got)
	}
	for range 50 { // what is known costs little, so it fits again and again
		if got := ask(spaces + "and more"); got != http.StatusOK {
			t.Fatalf("the same, and more: %d", got)
		}
	}
	if got := ask(strings.Repeat("漢x", 30_000)); got != http.StatusForbidden {
		t.Errorf("another of the same length: %d", got)
	}
}

// If a response has no usage, or usage that is not plausible, the length of its
// text is used and marked as an estimate.
func TestAnAnswerWithoutCredibleUsageIsEstimated(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("many words ", 300)
	for name, body := range map[string]string{
		"openai-chat": `{"choices":[{"message":{"content":"` + text + `"},"finish_reason":"stop"}]%s}`,
		"anthropic":   `{"content":[{"type":"text","text":"` + text + `"}]%s}`,
		"openai":      `{"output":[{"type":"message","content":[{"type":"output_text","text":"` + text + `"}]}]%s}`,
		"gemini":      `{"candidates":[{"content":{"parts":[{"text":"` + text + `"}]},"finishReason":"STOP"}]%s}`,
	} {
		for _, usage := range []string{"", `,"usage":{"input_tokens":10,"output_tokens":1e12,"prompt_tokens":10,"completion_tokens":1e12},"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1e12}`} {
			t.Run(name+usage, func(t *testing.T) {
				t.Parallel()
				p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = fmt.Fprintf(w, body, usage)
				})
				b := start(t, p.model(name))
				for _, r := range requests {
					if r.dialect == name {
						b.ask(t.Context(), t, r.path, r.body)
					}
				}
				u := b.Usage()[0]
				if least := int64(len(text) / 4); u.Estimated != 1 || u.OutputTokens < least || u.OutputTokens > 2*least || u.InputTokens < 1 || u.InputTokens > 1000 {
					t.Errorf("usage %+v", u)
				}
				if f := b.Findings(); (len(f) == 1 && f[0].Code == "usage_not_believed") != (usage != "") {
					t.Errorf("findings %+v", f)
				}
			})
		}
	}
}

// Tokens that are written to a cache for an hour have their own price.
func TestCacheWritesOfAnHourHaveTheirPrice(t *testing.T) {
	t.Parallel()
	p := provide(t, replies(`{"content":[],"usage":{"input_tokens":100,"cache_creation_input_tokens":3000,"cache_creation":{"ephemeral_5m_input_tokens":1000,"ephemeral_1h_input_tokens":2000},"output_tokens":0}}`))
	m := p.model("anthropic")
	m.Price = &dialect.Price{Input: new(1e6), CacheWrite: new(2e6), CacheHour: new(3e6), Output: new(0.0)}
	b := start(t, m)
	b.ask(t.Context(), t, requests[0].path, requests[0].body)
	if u := b.Usage()[0]; u.CostUSD == nil || *u.CostUSD != 100+2*1000+3*2000 {
		t.Errorf("usage %+v costs %v", u, *u.CostUSD)
	}
}
