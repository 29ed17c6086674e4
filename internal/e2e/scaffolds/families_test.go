package scaffolds

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/dialects/prices"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
)

// family is a group of models of the price table that CLIs and their libraries
// treat alike: by the name they choose an API, a way to ask for an effort, or
// parameters to leave out.
type family struct {
	names   *regexp.Regexp
	model   string // stands for all of them
	plain   bool   // does not reason
	dialect []model.Dialect
}

var (
	ofOpenAI    = []model.Dialect{model.DialectOpenAIChat, model.DialectOpenAI}
	ofAnthropic = []model.Dialect{model.DialectAnthropic}
	ofGoogle    = []model.Dialect{model.DialectGemini}
)

var families = []family{
	{regexp.MustCompile(`^gpt-4`), "gpt-4.1", true, ofOpenAI},
	{regexp.MustCompile(`^o[34]`), "o4-mini", false, ofOpenAI},
	{regexp.MustCompile(`^gpt-5(\.[12])?(-mini|-nano)?$`), "gpt-5-mini", false, ofOpenAI},
	{regexp.MustCompile(`^gpt-5\..-codex$`), "gpt-5.3-codex", false, ofOpenAI},
	{regexp.MustCompile(`^gpt-5\..-pro$`), "gpt-5.5-pro", false, ofOpenAI},
	{regexp.MustCompile(`^gpt-5\.[4-6](-\w+)?$`), "gpt-5.4", false, ofOpenAI},
	{regexp.MustCompile(`^gpt-6(\.1)?-`), "gpt-6-sol", false, ofOpenAI},
	{regexp.MustCompile(`^claude-\w+-4-[01]$`), "claude-opus-4-1", false, ofAnthropic},
	{regexp.MustCompile(`^claude-\w+-4-5$`), "claude-sonnet-4-5", false, ofAnthropic},
	{regexp.MustCompile(`^claude-\w+-4-[678]$`), "claude-opus-4-8", false, ofAnthropic},
	{regexp.MustCompile(`^claude-\w+-5(-[15])?$`), "claude-opus-5-5", false, ofAnthropic},
	{regexp.MustCompile(`^gemini-2\.`), "gemini-2.5-pro", false, ofGoogle},
	{regexp.MustCompile(`^gemini-3`), "gemini-3.8-flash", false, ofGoogle},
}

// The families are those of the price table: a name that comes to it belongs to
// one of them, and each has a name.
func TestEachModelOfThePriceTableIsOfAFamily(t *testing.T) {
	t.Parallel()
	of := func(name string) int {
		return slices.IndexFunc(families, func(f family) bool { return f.names.MatchString(name) })
	}
	for name := range prices.Shipped() {
		if of(name) < 0 {
			t.Errorf("%s is of no family: add one, or the name to one", name)
		}
	}
	for i, f := range families {
		if _, ok := prices.Shipped()[f.model]; !ok || of(f.model) != i {
			t.Errorf("%s stands for a family that is not its own, or is not in the table", f.model)
		}
	}
}

// Each CLI works with each family of models of the price table, in each dialect
// that it speaks: with a call and its result, under the model's name, and with
// the effort that was asked for, if it can set one.
func TestEachFamilyOfModels(t *testing.T) {
	table(t)
	for _, s := range scaffolds {
		t.Run(s.name, func(t *testing.T) {
			needs(t, s)
			if s.plugin != "" {
				t.Skip("its own plugin is tried with each")
			}
			speaks, effort := s.abilities(t)
			for _, d := range speaks {
				for _, f := range families {
					if slices.Contains(f.dialect, d) {
						t.Run(fmt.Sprintf("%s/%s", d, f.model), func(t *testing.T) {
							t.Parallel()
							f.try(t, s, d, effort)
						})
					}
				}
			}
		})
	}
}

// try has a scaffold work with a model of the family, with an effort if it has a
// setting for one.
func (f family) try(t *testing.T, s scaffold, d model.Dialect, effort bool) {
	s.model, s.dialect = f.model, d
	sets := effort
	if effort = effort && !f.plain && !s.refuses(t, d, f.model); effort {
		s.settings = map[string]any{"reasoning_effort": "high"}
	}
	b := set(t, s, fmt.Sprintf("replies:\n  - {when: {turn: 0}, %s, %s}\n  - {when: {turn: 1, last: OUT-one}, %s, %s}\n",
		s.call("one", "echo OUT-one"), usage, s.last("all is done"), usage))
	session, err := b.agent.Open(t.Context(), b.setup)
	e2etest.Must(t, err)
	r := &recorder{}
	y, err := session.Turn(t.Context(), agent.Message{Turn: 1, Text: "go on"}, r)
	e2etest.Must(t, session.Close(t.Context(), "", r))
	b.mu.Lock()
	sent := slices.Clone(b.sent)
	b.mu.Unlock()
	if err != nil || y.End != agent.Done || len(r.steps) != 2 || r.steps[0].Observation == nil {
		t.Fatalf("%+v, %v; %d exchanges, steps %+v\n%s", y, err, len(sent), r.steps, last(b.setup.Scratch))
	}
	asked := ""
	for _, x := range sent {
		if x.Status != 200 || x.Asked != "" || x.Model != f.model || x.Dialect != string(d) {
			t.Errorf("status %d, model %q (asked for %q) in %s", x.Status, x.Model, x.Asked, x.Dialect)
		}
		body, err := recording.Fetch(filepath.Join(b.folder, record.ModelDir), x.Request)
		e2etest.Must(t, err)
		asked += thinks(t, body) // LiteLLM asks for no thoughts after a reply without any
	}
	t.Logf("%d exchanges, effort %s", len(sent), asked)
	if sets && effort != (strings.Contains(strings.ToLower(asked), `"high"`) || strings.Contains(asked, `"budget_tokens"`)) {
		t.Errorf("an effort is set: %v, and the requests ask for %s", effort, asked)
	}
}

// refuses reports whether a scaffold that can set an effort refuses to do so for a
// model.
func (s scaffold) refuses(t *testing.T, d model.Dialect, name string) bool {
	t.Helper()
	a, _ := s.serve(t)
	n, err := a.Check(t.Context(), agent.CheckRequest{
		Role: agent.RoleAgent, Config: json.RawMessage(`{"reasoning_effort": "high"}`), Models: map[string]model.Info{"default": {Dialect: d, Name: name}},
	})
	e2etest.Must(t, err)
	if len(n.Refusals) > 0 {
		t.Logf("refuses an effort: %s", n.Refusals)
	}
	return len(n.Refusals) > 0
}

// thinks is what a request says about thinking.
func thinks(t *testing.T, body []byte) string {
	t.Helper()
	var r struct {
		Effort     json.RawMessage `json:"reasoning_effort,omitempty"`
		Reasoning  json.RawMessage `json:"reasoning,omitempty"`
		Output     json.RawMessage `json:"output_config,omitempty"`
		Thinking   json.RawMessage `json:"thinking,omitempty"`
		Generation struct {
			Thinking json.RawMessage `json:"thinkingConfig,omitempty"`
		} `json:"generationConfig,omitzero"`
	}
	e2etest.Must(t, json.Unmarshal(body, &r))
	b, err := json.Marshal(r)
	e2etest.Must(t, err)
	return string(b)
}

// abilities returns the dialects that a scaffold says it speaks, and whether it
// has a setting for an effort.
func (s scaffold) abilities(t *testing.T) (speaks []model.Dialect, effort bool) {
	t.Helper()
	a, _ := s.serve(t)
	n, err := a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent, Config: json.RawMessage(`{"reasoning_effort": "high"}`)})
	e2etest.Must(t, err)
	return n.Dialects, len(n.Refusals) == 0
}
