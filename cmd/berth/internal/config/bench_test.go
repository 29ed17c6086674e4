package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
)

// BenchmarkThousandCells is what a plan of 10,000 trials spends here, with ten
// tasks or repetitions in a cell.
func BenchmarkThousandCells(b *testing.B) {
	dir := b.TempDir()
	text := `
experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  matrix {
    agent  = [agent.a, agent.b]
    model  = [model.one, model.two]
    effort = ["low", "high"]
    n      = range(125)
  }
  per_trial { cost_usd = matrix.n + 1 }
}
dataset "t" {
  format = "harbor"
  path   = "."
}
environment "box" { plugin = "box" }
`
	for _, l := range []string{"a", "b"} {
		text += fmt.Sprintf("agent %q {\n  plugin = \"loop\"\n  config {\n    effort = \"${local.p}-${matrix.effort}-%s\"\n    turns = matrix.n\n    token = secret(\"KEY\")\n  }\n}\n", l, l)
	}
	for _, l := range []string{"one", "two"} {
		text += fmt.Sprintf("model %q {\n  provider = \"script\"\n  name = %q\n  api_key = secret(\"KEY\")\n}\n", l, l)
	}
	text += "locals {\n  p = join(\"-\", [\"x\", \"y\"])\n}\n"
	path := filepath.Join(dir, "x.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		e, ds := config.Load(b.Context(), path, options())
		if e == nil || len(e.Cells) != 1000 {
			b.Fatal(ds)
		}
	}
}
