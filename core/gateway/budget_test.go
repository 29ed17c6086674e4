package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
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

// bill is a request that is made part by part, with what its provider may bill for
// the parts: for text at most a token for each byte, because tokens are made of
// bytes, and for an image what the documentation of the provider says.
type bill struct {
	rand   *rand.Rand
	tokens int64
}

// text is text that has many tokens for its length, or few.
func (b *bill) text() string {
	raw := make([]byte, b.rand.IntN(2000))
	for i := range raw {
		raw[i] = byte(b.rand.IntN(256))
	}
	s := ""
	switch b.rand.IntN(5) {
	case 0:
		s = hex.EncodeToString(raw)
	case 1:
		s = base64.StdEncoding.EncodeToString(raw)
	case 2:
		s = strings.ToValidUTF8(string(raw), "漢")
	case 3:
		s = strings.Repeat("the same words ", len(raw)/15)
	default:
		s = "data:image/png;base64," + base64.StdEncoding.EncodeToString(raw)
	}
	b.tokens += int64(len(s))
	return s
}

// image is a picture in base64.
func (b *bill) image(tokens func(w, h int) int) string {
	w, h := 1+b.rand.IntN(3000), 1+b.rand.IntN(1500)
	var out bytes.Buffer
	shot := image.NewGray(image.Rect(0, 0, w, h))
	for i := range min(len(shot.Pix), 20_000) {
		shot.Pix[i] = byte(b.rand.IntN(256))
	}
	if err := png.Encode(&out, shot); err != nil {
		panic(err)
	}
	b.tokens += int64(tokens(w, h))
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

func ceil(n, of int) int { return (n + of - 1) / of }

// The rules of providers for images, in tokens.
func anthropicImage(w, h int) int { return min(w*h/750, 4784) }
func geminiImage(w, h int) int    { return 258 * ceil(w, 768) * ceil(h, 768) }
func openaiImage(w, h int) int {
	tiles := min(8, ceil(w, 512)*ceil(h, 512))
	patches := min(1536, ceil(w, 32)*ceil(h, 32))
	return max(85+170*tiles, patches*246/100)
}

type object = map[string]any

// blocks makes the content of a message of a dialect.
func (b *bill) blocks(dialect string) []object {
	var out []object
	for range 1 + b.rand.IntN(4) {
		kind := b.rand.IntN(4)
		switch {
		case dialect == "anthropic" && kind == 0:
			out = append(out, object{"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": b.image(anthropicImage)}})
		case dialect == "anthropic" && kind == 1:
			out = append(out, object{"type": "document", "source": object{"type": "text", "media_type": "text/plain", "data": b.text()}})
		case dialect == "anthropic" && kind == 2:
			out = append(out, object{"type": "tool_use", "id": "t", "name": "f", "input": object{"type": "base64", "media_type": "image/png", "data": b.text()}})
		case dialect == "anthropic":
			out = append(out, object{"type": "text", "text": b.text()})
		case dialect == "gemini" && kind == 0:
			out = append(out, object{"inlineData": object{"mimeType": "image/png", "data": b.image(geminiImage)}})
		case dialect == "gemini" && kind == 1:
			out = append(out, object{"functionCall": object{"name": "f", "args": object{"inlineData": object{"mimeType": "image/png", "data": b.text()}}}})
		case dialect == "gemini":
			out = append(out, object{"text": b.text()})
		case dialect == "openai" && kind == 0:
			out = append(out, object{"type": "input_image", "image_url": "data:image/png;base64," + b.image(openaiImage)})
		case dialect == "openai":
			out = append(out, object{"type": "input_text", "text": b.text()})
		case kind == 0:
			out = append(out, object{"type": "image_url", "image_url": object{"url": "data:image/png;base64," + b.image(openaiImage)}})
		default:
			out = append(out, object{"type": "text", "text": b.text()})
		}
	}
	return out
}

// request makes a request of a dialect for an answer of at most 10 tokens.
func (b *bill) request(dialect string) object {
	messages := []object{}
	for range 1 + b.rand.IntN(3) {
		messages = append(messages, object{"role": "user", "content": b.blocks(dialect)})
	}
	switch dialect {
	case "anthropic":
		return object{"model": "m1", "max_tokens": 10, "system": b.text(), "messages": messages}
	case "openai":
		return object{"model": "m1", "max_output_tokens": 10, "instructions": b.text(), "input": messages}
	case "openai-chat":
		r := object{"model": "m1", "max_completion_tokens": 10, "messages": messages}
		if b.rand.IntN(2) == 0 {
			r["prediction"] = object{"type": "content", "content": b.text()}
		}
		return r
	default:
		for _, m := range messages {
			m["parts"] = m["content"]
			delete(m, "content")
		}
		return object{"generationConfig": object{"maxOutputTokens": 10}, "contents": messages}
	}
}

// A request that a provider could bill with one token more than there are left is
// not sent, whatever it has; neither is its second one with the same beginning.
func TestWhatIsReservedIsWhatCouldBeBilled(t *testing.T) {
	t.Parallel()
	for _, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			for n := range 40 {
				b := &bill{rand: rand.New(rand.NewPCG(uint64(n), 1))} //nolint:gosec // texts, no secrets
				body, err := json.Marshal(b.request(r.dialect))
				if err != nil {
					t.Fatal(err)
				}
				p := provide(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
				s := start(t, p.model(r.dialect), func(_ *cell.Model, _ *Options, s *models.Spec) {
					s.Budget.Tokens = new(b.tokens + 10 - 1)
				})
				got := s.ask(t.Context(), t, r.path, string(body))
				if s.State().Refusal == nil || len(p.bodies) > 0 {
					t.Errorf("request %d, which can be billed with %d tokens, was sent with %d left: %d %s", n, b.tokens+10, b.tokens+9, got.status, got.body)
				}
			}
		})
	}
}

// What was a file in the last request, and is text now, is new.
func TestAFileThatBecomesTextIsNew(t *testing.T) {
	t.Parallel()
	b := &bill{rand: rand.New(rand.NewPCG(1, 1))} //nolint:gosec // as above
	data := b.image(anthropicImage)
	body := func(kind, media string) string {
		return fmt.Sprintf(`{"model":"m1","max_tokens":10,"messages":[{"role":"user","content":[{"type":%q,"source":{"data":"%s","type":%q,"media_type":%q}}]}]}`,
			map[string]string{"base64": "image", "text": "document"}[kind], data, kind, media)
	}
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"a","type":"message","role":"assistant","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":1}}`))
	})
	s := start(t, p.model("anthropic"), func(_ *cell.Model, _ *Options, s *models.Spec) {
		s.Budget.Tokens = new(int64(len(data)) + 10)
	})
	if got := s.ask(t.Context(), t, requests[0].path, body("base64", "image/png")); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	got := s.ask(t.Context(), t, requests[0].path, body("text", "text/plain"))
	if s.State().Refusal == nil || len(p.bodies) != 1 {
		t.Errorf("%d bytes of text were sent with a budget of %d tokens: %d %s", len(data), len(data)+10, got.status, got.body)
	}
}

// Audio has other prices than text: with a budget in USD it is refused, and without
// one its cost is not known.
func TestAudioNeedsNoBudgetInUSD(t *testing.T) {
	t.Parallel()
	body := `{"model":"m1","max_tokens":10,"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}]}`
	for _, budget := range []*float64{nil, new(100.0)} {
		p := provide(t, func(w http.ResponseWriter, _ *http.Request) { answerChat(w) })
		b := start(t, p.model("openai-chat"), func(m *cell.Model, _ *Options, s *models.Spec) {
			m.Price, s.Budget.CostUSD = &dialect.Price{Input: new(1.0), Output: new(1.0)}, budget
		})
		got := b.ask(t.Context(), t, requests[2].path, body)
		if refused := got.status != http.StatusOK; refused != (budget != nil) || refused && !strings.Contains(got.body, "audio has a separate price") {
			t.Errorf("with a budget of %v: %d %s", budget, got.status, got.body)
		}
		if x := b.last(t); budget == nil && x.CostUSD != nil {
			t.Errorf("the cost of audio is %g USD; want none", *x.CostUSD)
		}
	}
}
