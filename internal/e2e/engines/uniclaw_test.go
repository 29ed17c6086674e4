package engines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A sample task in UniClawBench's layout, with services that only root can read, in
// containers: its solution passes, and doing nothing does not.
func TestASampleOfUniClaw(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, machineFor(t, name, debian).env())
			e2etest.Must(t, os.CopyFS(p.dir, os.DirFS(filepath.Join(tree, "examples", "uniclaw"))))
			text := e2etest.Read(t, p.dir, "berth.hcl")
			for old, with := range map[string]string{
				"environment = environment.local\n": "environment = environment." + name + "\n",
				`format = "uniclaw"`:                "format = \"uniclaw\"\n  include = [\"103_services/stock\"]",
				`solutions = "solutions"`:           "solutions = \"solutions\"\n    image = \"" + debian + "\"",
			} {
				if !strings.Contains(text, old) {
					t.Fatalf("the example has no %q", old)
				}
				text = strings.Replace(text, old, with, 1)
			}
			p.write("berth.hcl", text)
			p.berth(0, "run", ".", "--no-live")
			trials := p.show().Trials
			for _, tr := range trials {
				want := map[string]record.Outcome{"agent=oracle": record.Passed, "agent=nop": record.Failed}[tr.CellKey]
				if tr.Outcome != want {
					t.Errorf("%s is %s, want %s", tr.CellKey, tr.Outcome, want)
				}
			}
			if len(trials) != 2 {
				t.Errorf("%d trials", len(trials))
			}
		})
	}
}
