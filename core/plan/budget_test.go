package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
)

func TestABudgetThatCannotPayForOneRequestIsAWarning(t *testing.T) {
	t.Parallel()
	const table = `  provider = "anthropic"
  name     = "claude-opus-4-8"
`
	const dear = `  provider = "anthropic"
  name     = "m"
  base_url = "http://x"
  price {
    input  = 5
    output = 25
  }
`
	for _, tt := range []struct {
		name, limits, model string
		want                []string // of the one warning; none: there is no warning
	}{
		{"what the quickstart says", "per_trial {\n cost_usd = 1\n }", table, nil},
		{"too small", "per_trial {\n cost_usd = 0.3\n }", table, []string{"per_trial has cost_usd = 0.3", "16384 tokens", "sets aside 0.54 USD", "at least 0.54,"}},
		{"own price", "per_trial {\n cost_usd = 0.3\n }", dear, []string{"at least 0.51,"}},
		{"of a cell", "per_cell {\n cost_usd = 0.3\n }", dear, []string{"per_cell has"}},
		{"of the run", "limits {\n cost_usd = 0.3\n }", dear, []string{"limits has"}},
		{"tokens", "per_trial {\n tokens = 36383\n }", dear, []string{"per_trial has tokens = 36383", "at least 36384,"}},
		{"tokens that are enough", "per_trial {\n tokens = 36384\n }", dear, nil},
		{"the model says less", "per_trial {\n cost_usd = 0.3\n }", dear + "  parameters {\n    max_tokens = 1000\n  }\n", nil},
		{"less is set aside", "per_trial {\n cost_usd = 0.3\n }", dear + "  reserve_output = 1000\n", nil},
		{"the model may say more", "per_trial {\n cost_usd = 1\n }", table + "  parameters {\n    max_tokens = 64000\n  }\n", []string{"64000 tokens", "at least 1.73,"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, map[string]string{"one": "", "two": ""})
			body := fmt.Sprintf("  agent = agent.a\n  model = model.m\n  %s\n}\nmodel \"m\" {\n%s}\n", tt.limits, tt.model)
			p := plans(t, load(t, dir, body), &plugins{needs: agent.Needs{Dialects: []model.Dialect{model.DialectAnthropic}}})
			var got []string
			for _, q := range p.Problems {
				if strings.Contains(q.Summary, "budget") {
					got = append(got, p.Say(q))
				}
				if q.Severity != config.Warning {
					t.Errorf("problem %+v", q)
				}
			}
			if len(got) != min(1, len(tt.want)) {
				t.Fatalf("warnings %q", got)
			}
			for _, w := range tt.want {
				if !strings.Contains(got[0], w) {
					t.Errorf("%q lacks %q", got[0], w)
				}
			}
		})
	}
}
