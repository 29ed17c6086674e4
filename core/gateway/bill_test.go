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
	"github.com/berth-eval/berth/plugins/dialect"
)

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
		if refused := got.status != http.StatusOK; refused != (budget != nil) || refused && !strings.Contains(got.body, "audio has a price of its own") {
			t.Errorf("with a budget of %v: %d %s", budget, got.status, got.body)
		}
		if x := b.last(t); budget == nil && x.CostUSD != nil {
			t.Errorf("the cost of audio is %g USD; want none", *x.CostUSD)
		}
	}
}
