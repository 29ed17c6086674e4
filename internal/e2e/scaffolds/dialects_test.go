package scaffolds

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
)

// spoken lists the dialects of CLIs that speak several, without the best one,
// which all other tests use. The value is how the dialect states an effort.
var spoken = map[string]map[model.Dialect]string{
	"pi":        {model.DialectOpenAI: `"effort":"low"`, model.DialectAnthropic: ""},
	"opencode":  {model.DialectOpenAI: `"effort":"low"`, model.DialectAnthropic: `"effort":"low"`},
	"qwen-code": {model.DialectOpenAI: `"effort":"low"`, model.DialectAnthropic: "", model.DialectGemini: ""},
	"nanobot":   {model.DialectOpenAI: `"effort":"low"`, model.DialectAnthropic: ""},
	"openhands": {model.DialectOpenAI: `"low"`, model.DialectAnthropic: ""},
}

// In each dialect of a CLI, calls and their results reach the model.
func TestEachDialect(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		for d, effort := range spoken[s.name] {
			t.Run(fmt.Sprintf("%s/%s", s.name, d), func(t *testing.T) {
				t.Parallel()
				needs(t, s)
				s := s // each dialect changes its own
				s.dialect, s.settings = d, map[string]any{}
				if effort != "" {
					s.settings["reasoning_effort"] = "low"
				}
				b := set(t, s, fmt.Sprintf("replies:\n  - {when: {turn: 0}, %s}\n  - {when: {turn: 1, last: OUT-one}, %s}\n", s.call("one", "echo OUT-one"), s.last("all is done")))
				session, err := b.agent.Open(t.Context(), b.setup)
				e2etest.Must(t, err)
				r := &recorder{}
				y, err := session.Turn(t.Context(), agent.Message{Turn: 1, Text: "go on"}, r)
				if err != nil || y.End != agent.Done || len(r.steps) != 2 || r.steps[0].Observation == nil {
					t.Fatalf("%+v, %v: %+v\n%s", y, err, r.steps, last(b.setup.Scratch))
				}
				e2etest.Must(t, session.Close(t.Context(), "", r))
				if said := b.requests(t); !strings.Contains(said, effort) {
					t.Errorf("no request has %s: %.3000s", effort, said)
				}
			})
		}
	}
}

// requests returns the bodies of all requests.
func (b *bench) requests(t *testing.T) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var all strings.Builder
	for _, x := range b.sent {
		body, err := recording.Fetch(filepath.Join(b.folder, record.ModelDir), x.Request)
		e2etest.Must(t, err)
		all.Write(body)
	}
	return all.String()
}

// exchanges are all that were recorded.
func (b *bench) exchanges() []gateway.Exchange {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sent)
}
