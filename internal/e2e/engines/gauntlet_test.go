package engines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// chromium is an image with Chromium, made by scripts/engines-for-tests --chromium.
const chromium = "localhost/berth-test/chromium:1"

// The example of GauntletBench's layout in containers: solutions pass, and nothing
// else does.
func TestTheGauntletExample(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, machineFor(t, name, chromium).env())
			e2etest.Must(t, os.CopyFS(p.dir, os.DirFS(filepath.Join(tree, "examples", "gauntlet"))))
			text, trials := e2etest.Read(t, p.dir, "berth.hcl"), 60
			if !testlevel.All() {
				trials = 4
				for old, with := range map[string]string{
					"[agent.oracle, agent.nop, agent.random]": "[agent.oracle, agent.nop]",
					`path   = "."`: "path   = \".\"\n  include = [\"tc_graph_004\", \"tc_frad_001\"]",
				} {
					if !strings.Contains(text, old) {
						t.Fatalf("the example has no %q", old)
					}
					text = strings.Replace(text, old, with, 1)
				}
				p.write("berth.hcl", text)
			}
			p.berth(0, "run", ".", "--var", "environment="+name, "--var", "image="+chromium)
			onlyTheOracle(t, p.show().Trials, trials)
		})
	}
}

// onlyTheOracle checks that the solutions passed, and that nothing else did.
func onlyTheOracle(t *testing.T, all []output.ShowTrial, want int) {
	t.Helper()
	for _, tr := range all {
		failed := tr.Outcome == record.Failed || tr.Outcome == record.ArtifactMissing
		if oracle := tr.CellKey == "agent=oracle"; oracle && tr.Outcome != record.Passed || !oracle && !failed {
			t.Errorf("%s of %s is %s", tr.Task, tr.CellKey, tr.Outcome)
		}
	}
	if len(all) != want {
		t.Errorf("%d trials, want %d", len(all), want)
	}
}
