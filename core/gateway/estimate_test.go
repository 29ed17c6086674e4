package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/dialect"
)

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
