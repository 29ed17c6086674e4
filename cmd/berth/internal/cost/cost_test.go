package cost_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/cost"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

// format is a task format whose tasks are empty.
type format struct{}

func (format) Name() string { return "empty" }

func (format) Detect(dir string) bool { return filepath.Base(filepath.Dir(dir)) == "tasks" }

func (format) Load(_ context.Context, dir string, _ task.Options) (*task.Task, []task.Problem, error) {
	return &task.Task{Name: filepath.Base(dir), Digest: "sha256:0", Dir: dir, Stages: []task.Stage{{Name: "main"}}}, nil, nil
}

// planned plans two tasks with an experiment whose block of that name holds body,
// and asks no plugin.
func planned(t *testing.T, body string) *plan.Plan {
	t.Helper()
	dir := t.TempDir()
	for _, task := range []string{"one", "two"} {
		if err := os.MkdirAll(filepath.Join(dir, "tasks", task), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "x.hcl")
	const rest = `
dataset "d" {
  format = "empty"
  path   = "./tasks"
}
environment "e" {
  plugin = "env"
}
agent "a" {
  plugin = "first"
}
`
	if err := os.WriteFile(file, []byte("experiment \"x\" {\n  datasets = [dataset.d]\n  environment = environment.e\n"+body+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	e, ds := config.Load(t.Context(), file, config.Options{
		LookupEnv: func(string) (string, bool) { return "", false },
		Schemas:   func(plugins.Kind, string) (pluginconfig.Schema, error) { return pluginconfig.Schema{}, nil },
	})
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	p, err := plan.Make(t.Context(), plan.Input{Experiment: &e.Experiment, Formats: []task.Format{format{}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fallback is the block of model f; without a price if it is 0.
func fallback(price int) string {
	block := ""
	if price > 0 {
		block = fmt.Sprintf("  price {\n    input = %[1]d\n    output = %[1]d\n  }\n", price)
	}
	return "model \"f\" {\n  provider = \"x\"\n  name = \"f\"\n" + block + "}\n"
}

func TestCostIsTheWorstOrUnknown(t *testing.T) {
	t.Parallel()
	const models = "\nmodel \"m\" {\n  provider = \"x\"\n  name = \"m\"\n%s}\n"
	price := "  price {\n    input = 1\n    output = 10\n  }\n"
	for name, tt := range map[string]struct {
		body, price string
		want        float64 // below zero: unknown
		why         string
	}{
		"no model":         {"  agent = agent.a\n}\n", price, 0, ""},
		"budget":           {"  agent = agent.a\n  model = model.m\n  per_trial {\n    cost_usd = 2\n  }\n}\n", price, 4, ""},
		"tokens":           {"  agent = agent.a\n  model = model.m\n  per_trial {\n    tokens = 1000000\n  }\n}\n", price, 20, ""},
		"retries":          {"  agent = agent.a\n  model = model.m\n  per_trial {\n    cost_usd = 2\n  }\n  retry {\n    max = 2\n    on = [\"rate_limited\"]\n  }\n}\n", price, 12, ""},
		"limit of the run": {"  agent = agent.a\n  model = model.m\n  per_trial {\n    cost_usd = 2\n  }\n  limits {\n    cost_usd = 3\n  }\n}\n", price, 3, ""},
		"budget of a cell": {"  agent = agent.a\n  model = model.m\n  per_cell {\n    cost_usd = 3\n  }\n}\n", price, 3, ""},
		"both budgets":     {"  agent = agent.a\n  model = model.m\n  per_trial {\n    cost_usd = 1\n  }\n  per_cell {\n    cost_usd = 3\n  }\n}\n", price, 2, ""},
		"dearer fallback":  {"  agent = agent.a\n  model = model.m\n  per_trial {\n    tokens = 1000000\n  }\n}\n" + fallback(100), price + "  fallback = [model.f]\n", 200, ""},
		"no price of it":   {"  agent = agent.a\n  model = model.m\n  per_trial {\n    tokens = 1000000\n  }\n}\n" + fallback(0), price + "  fallback = [model.f]\n", -1, "price of model \"f\""},
		"no budget":        {"  agent = agent.a\n  model = model.m\n}\n", price, -1, "has no budget"},
		"no price, cell":   {"  agent = agent.a\n  model = model.m\n  per_cell {\n    cost_usd = 2\n  }\n}\n", "", -1, "price of model"},
		"no price":         {"  agent = agent.a\n  model = model.m\n  per_trial {\n    cost_usd = 2\n  }\n}\n", "", -1, "price of model"},
	} {
		switch c := cost.WorstCase(planned(t, tt.body+fmt.Sprintf(models, tt.price)), &dialects.All); {
		case tt.want >= 0 && (c.WorstUSD == nil || *c.WorstUSD != tt.want):
			t.Errorf("%s: %+v, want %g", name, c, tt.want)
		case tt.want < 0 && (c.WorstUSD != nil || len(c.Unknown) != 1 || !strings.Contains(c.Unknown[0], tt.why)):
			t.Errorf("%s: %+v, want unknown because %q", name, c, tt.why)
		}
	}
}

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
			p := planned(t, fmt.Sprintf("  agent = agent.a\n  model = model.m\n  %s\n}\nmodel \"m\" {\n%s}\n", tt.limits, tt.model))
			var got []string
			for _, q := range cost.SmallBudgets(p, &dialects.All) {
				got = append(got, q.Detail)
				if q.Severity != plan.Warning {
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
