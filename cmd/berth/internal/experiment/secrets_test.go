package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/plugins/task"
)

// A secret that several cells use is reported once, and that of a verifier only
// if a task of the cell's datasets names the verifier.
func TestSecretsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.hcl")
	if err := os.WriteFile(file, []byte(`
experiment "x" {
  datasets    = [dataset.used]
  environment = environment.box
  matrix {
    agent = [agent.a, agent.b]
  }
}
dataset "used" {
  format = "f"
  path   = "."
}
environment "box" {
  plugin = "box"
  env    = { A = secret("SHARED") }
}
agent "a" { plugin = "one" }
agent "b" { plugin = "two" }
verifier "named" { env = { A = secret("NAMED") } }
verifier "elsewhere" { env = { A = secret("ELSEWHERE") } }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	e, ds := config.Load(t.Context(), file, config.Options{})
	if e == nil {
		t.Fatal(ds)
	}
	of := func(dataset, verifier string) plan.Task {
		return plan.Task{Dataset: dataset, Task: &task.Task{Stages: []task.Stage{{Verifiers: []task.VerifierUse{{Name: verifier}}}}}}
	}
	l := &Loaded{Experiment: e, Plan: &plan.Plan{
		Experiment: &e.Experiment,
		Tasks:      []plan.Task{of("used", "named"), of("other", "elsewhere"), {Dataset: "used"}},
	}}
	if !l.Ready() {
		t.Error("it is not ready before its secrets are read")
	}
	l.readSecrets()
	said := l.Secrets.Error()
	if len(l.Secrets) != 2 || !strings.Contains(said, "SHARED") || !strings.Contains(said, "NAMED") || l.Ready() {
		t.Errorf("ready: %v, %d secrets: %s", l.Ready(), len(l.Secrets), said)
	}
}
