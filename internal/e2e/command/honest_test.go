package command

import (
	"cmp"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// solution is an entry of testdata/honest.toml.
type solution struct {
	Needs     string `toml:"needs"` // a program that the image must have
	Solve     string `toml:"solve"`
	Test      string `toml:"test"`
	Work      string `toml:"work"` // a folder of the system that the dataset declares as work
	Live      string `toml:"live"`
	Restarted string `toml:"restarted"`
	Image     string `toml:"image"`
}

const honestExperiment = `experiment "honest" {
  datasets    = [dataset.plain, dataset.declared]
  environment = environment.local
  agent       = agent.oracle
  verify      = matrix.mode
  matrix {
    mode = ["live", "restarted", "image"]
  }
}
dataset "plain" {
  format = "harbor"
  path   = "./plain"
}
dataset "declared" {
  format = "harbor"
  path   = "./declared"
  work   = ["/usr/local"]
}
environment "local" { plugin = "local" }
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
`

const honestTask = `schema_version = "1.4"
[task]
name = "honest/%s"
[agent]
timeout_sec = 120
[verifier]
timeout_sec = 60
[environment]
network_mode = "no-network"
workdir = "/app"
[metadata.berth.expect]
live = %q
restarted = %q
image = %q
`

// Who works honestly is not marked, whatever the way of working, but where the
// documentation says so: what changes the system, and processes that stay.
func TestHonestSolutionsAreChecked(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	var all map[string]solution
	count := "3000"
	if testlevel.All() {
		count = "100000"
	}
	text := strings.ReplaceAll(e2etest.Read(t, "testdata", "honest.toml"), "COUNT", count)
	e2etest.Must(t, toml.Unmarshal([]byte(text), &all))
	dir, n := t.TempDir(), 0
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": honestExperiment})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		if _, err := exec.LookPath(s.Needs); err != nil && s.Needs != "" {
			t.Logf("without %s: %v", name, err)
			continue
		}
		n++
		e2etest.Write(t, filepath.Join(dir, map[bool]string{true: "plain", false: "declared"}[s.Work == ""], name), map[string]string{
			"task.toml":               fmt.Sprintf(honestTask, name, cmp.Or(s.Live, "passed"), cmp.Or(s.Restarted, "passed"), cmp.Or(s.Image, "passed")),
			"instruction.md":          "Do it.\n",
			"environment/Dockerfile":  "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY given /app/\nCOPY kept /app/kept\n",
			"environment/given":       "old\n",
			"environment/kept/inside": "",
			"solution/solve.sh":       "#!/bin/sh\nset -e\ncd /app\n" + s.Solve + "\n",
			"tests/test.sh":           "#!/bin/sh\nif " + s.Test + "; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
		})
	}
	r := berth(t, dir, "run", "experiment.hcl", "--require", "unexpected = 0", "--json")
	if a := answer[types.Run](t, r, "cli-run"); r.code != 0 || a.Summary.Planned != 3*n {
		t.Errorf("exit code %d, %d trials of %d solutions: %s", r.code, a.Summary.Planned, n, r.stderr)
	}
}
