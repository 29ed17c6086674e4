package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/dialect"
)

// What the provider might add to a request is assumed to be as long as its
// model allows. A budget that is smaller refuses the request.
func TestContentThatIsElsewhereIsReserved(t *testing.T) {
	t.Parallel()
	const context, budget = 50_000, 40_000
	document := func(source string) string {
		return `{"model":"m1","max_tokens":100,"messages":[{"role":"user","content":[{"type":"document","source":` + source + `}]}]}`
	}
	chat := func(part string) string {
		return `{"model":"m1","max_tokens":100,"messages":[{"role":"user","content":[` + part + `]}]}`
	}
	input := func(part string) string {
		return `{"model":"m1","max_output_tokens":100,"input":[{"role":"user","content":[` + part + `]}]}`
	}
	gemini := func(part string) string {
		return `{"generationConfig":{"maxOutputTokens":100},"contents":[{"role":"user","parts":[` + part + `]}]}`
	}
	for _, tt := range []struct {
		name    string
		request int // of requests
		body    string
		refused bool
	}{
		{"document by address", 0, document(`{"type":"url","url":"https://x/a.pdf"}`), true},
		{"document by id", 0, document(`{"type":"file","file_id":"f1"}`), true},
		{"document in a result", 0, `{"model":"m1","max_tokens":100,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"document","source":{"type":"url","url":"https://x/a.pdf"}}]}]}]}`, true},
		{"document itself", 0, document(`{"type":"text","media_type":"text/plain","data":"hello"}`), false},
		{"a tool of the provider that is offered", 0, `{"model":"m1","max_tokens":100,"tools":[{"type":"web_search_20250305","name":"web_search"}],"messages":[{"role":"user","content":"hi"}]}`, false},
		{"file by address", 1, input(`{"type":"input_file","file_url":"https://x/a.pdf"}`), true},
		{"file by id", 1, input(`{"type":"input_file","file_id":"f1"}`), true},
		{"prompt", 1, `{"model":"m1","max_output_tokens":100,"input":"hi","prompt":{"id":"p1"}}`, true},
		{"conversation", 1, `{"model":"m1","max_output_tokens":100,"input":"hi","conversation":"c1"}`, true},
		{"answer that nobody knows", 1, `{"model":"m1","max_output_tokens":100,"input":"hi","previous_response_id":"r1"}`, true},
		{"text", 1, input(`{"type":"input_text","text":"hi"}`), false},
		{"file of a chat by id", 2, chat(`{"type":"file","file":{"file_id":"f1"}}`), true},
		{"image of a chat", 2, chat(`{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="}}`), false},
		{"what says that it is an image", 2, chat(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`), true},
		{"document in base64", 0, document(`{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}`), true},
		{"file by URI", 3, gemini(`{"fileData":{"fileUri":"https://x/a"}}`), true},
		{"cached content", 3, `{"cachedContent":"cachedContents/1","generationConfig":{"maxOutputTokens":100},"contents":[{"parts":[{"text":"hi"}]}]}`, true},
		{"part", 3, gemini(`{"text":"hi"}`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := requests[tt.request]
			p := provide(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
			m := p.model(r.dialect)
			m.ContextTokens = context
			b := start(t, m, func(_ *cell.Model, _ *Options, s *models.Spec) {
				s.Budget.Tokens, s.Hosted = new(int64(budget)), true
			})
			got := b.ask(t.Context(), t, r.path, tt.body)
			if refused := b.State().Refusal != nil; refused != tt.refused || len(p.bodies) == 0 != tt.refused {
				t.Errorf("refused: %v, want %v; status %d: %s", refused, tt.refused, got.status, got.body)
			}
		})
	}
}

// An answer to the session itself is as long as that was.
func TestAnAnswerToTheSessionIsNoContentElsewhere(t *testing.T) {
	t.Parallel()
	b := start(t, scripted(t, "replies:\n  - {text: x, usage: {input: 20, output: 20}}\n"), func(_ *cell.Model, _ *Options, s *models.Spec) {
		s.Budget.Tokens, s.Hosted = new(int64(10_000)), true
	})
	for i, extra := range []string{"", `,"previous_response_id":"r1"`} {
		if got := b.ask(t.Context(), t, "/v1/responses", `{"model":"m1","max_output_tokens":100,"input":"hi"`+extra+`}`); got.status != 200 {
			t.Errorf("request %d: %d, %s", i+1, got.status, got.body)
		}
	}
}

func TestAnAnswerWithoutBoundIsReservedAsItsModelSays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		set        func(*cell.Model)
		want       int64 // tokens of output
	}{
		{"the client's", `"max_tokens":300,`, func(*cell.Model) {}, 300},
		{"the client's, more than the model can say", `"max_tokens":999999,`, func(m *cell.Model) { m.Name = "claude-opus-4-8" }, 128000},
		{"usual", "", func(*cell.Model) {}, 16384},
		{"the model's, which is less", "", func(m *cell.Model) { m.Name = "gemini-2.0-flash" }, 8192},
		{"the parameters'", "", func(m *cell.Model) { m.Parameters = []byte(`{"max_tokens":200}`) }, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := scripted(t, "replies:\n  - {text: x}\n")
			tt.set(&m)
			b := start(t, m, func(_ *cell.Model, _ *Options, s *models.Spec) { s.Budget.Tokens = new(int64(1)) })
			got := b.ask(t.Context(), t, "/v1/chat/completions", fmt.Sprintf(`{%s"messages":[{"role":"user","content":"hi"}]}`, tt.body))
			if want := fmt.Sprintf("%d of output", tt.want); got.status != 403 || !strings.Contains(got.body, want) {
				t.Errorf("%d, %s; want %q", got.status, got.body, want)
			}
		})
	}
}

// Options that make tokens more expensive are not forwarded unless the
// experiment allows them.
func TestARequestHasTheUsualRate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		request  int
		name     string
		dear, ok string
	}{
		{0, "speed", `"fast"`, `"standard"`},
		{0, "service_tier", `"priority"`, `"standard_only"`},
		{0, "inference_geo", `"us"`, `"global"`},
		{1, "service_tier", `"priority"`, `"flex"`},
		{2, "service_tier", `{"odd":1}`, `"default"`},
		{3, "serviceTier", `"priority"`, `"flex"`},
		{3, "service_tier", `"PRIORITY"`, `"standard"`},
	} {
		t.Run(fmt.Sprint(requests[tt.request].dialect, " ", tt.name), func(t *testing.T) {
			t.Parallel()
			r := requests[tt.request]
			p := provide(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
			b := start(t, p.model(r.dialect), func(_ *cell.Model, _ *Options, s *models.Spec) { s.Hosted = true })
			for i, value := range []string{tt.dear, tt.ok} {
				b.ask(t.Context(), t, r.path, strings.Replace(r.body, "{", `{"`+tt.name+`":`+value+`,`, 1))
				if left := strings.Contains(p.bodies[i], tt.name); left != (i == 1) {
					t.Errorf("%s: sent %s", value, p.bodies[i])
				}
			}
			if fs := b.Findings(); len(fs) != 1 || fs[0].Code != "price_tier" || !strings.Contains(fs[0].Text, tt.name) {
				t.Errorf("findings %+v", fs)
			}
		})
	}
}

// Parameters that select another rate have no price in the table.
func TestAnotherRateNeedsAPrice(t *testing.T) {
	t.Parallel()
	key, one := cell.Plain("k"), 1.0
	for name, tt := range map[string]struct {
		parameters string
		price      *dialect.Price
		ok         bool
	}{
		"usual":                 {`{"service_tier":"auto"}`, nil, true},
		"dearer":                {`{"speed":"fast"}`, nil, false},
		"dearer, with a price":  {`{"speed":"fast"}`, priced(10, 1, 12, 50), true},
		"something of its body": {`{"temperature":0}`, nil, true},
	} {
		m := cell.Model{Label: "m", Provider: "anthropic", Name: "claude-opus-4-8", APIKey: &key, Parameters: []byte(tt.parameters), Price: tt.price}
		g, err := New(Options{Dialects: dialects.All, Dir: t.TempDir(), Models: []*cell.Model{&m}, Run: cell.Budget{CostUSD: &one}})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
		if g != nil {
			_ = g.Close()
		}
	}
}

func TestAPriceIsOfTheBlockOrOfTheTable(t *testing.T) {
	t.Parallel()
	table := &dialect.Set{Models: func() map[string]dialect.Known {
		return map[string]dialect.Known{"m1": {Price: &dialect.Price{Input: new(1.0), Output: new(2.0)}}}
	}}
	if p := PriceOf(table, &cell.Model{Name: "models/m1"}); p == nil || *p.Output != 2 {
		t.Errorf("m1 is not found: %+v", p)
	}
	if PriceOf(table, &cell.Model{Name: "m1", BaseURL: "http://elsewhere"}) != nil {
		t.Error("there is a price at somebody else's address")
	}
	own := &dialect.Price{Input: new(1.0)}
	if PriceOf(table, &cell.Model{Name: "m1", Price: own}) != own {
		t.Error("the experiment's price does not win")
	}
	if PriceOf(table, &cell.Model{Name: "nobody-knows"}) != nil {
		t.Error("a price was invented")
	}
}
