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
