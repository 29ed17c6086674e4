package engines

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A task has the same verdict in every mode and every environment.
func TestOneTaskHasTheSameVerdictInEveryMode(t *testing.T) {
	t.Parallel()
	everyPlugin(t, func(t *testing.T, p *place, plugin string) {
		p.separable(tampering{name: "solved", solve: "echo 42 > /app/answer"})
		p.separable(tampering{name: "wrong", solve: "echo 41 > /app/answer"})
		p.experiment(plugin, "", "verify = matrix.mode")
		p.write("berth.hcl", strings.Replace(p.read("berth.hcl"), "matrix {", "matrix {\n    mode = [\"live\", \"restarted\", \"image\", \"separate\"]", 1))
		p.berth(0, "run", ".")
		trials := p.show().Trials
		for _, tr := range trials {
			r := e2etest.Result(t, tr.Attempts[0].Dir)
			got := fmt.Sprintf("%s %v, %s", r.Outcome, *r.Score, r.Integrity)
			if want := map[string]string{"engines/solved": "passed 1, checked", "engines/wrong": "failed 0, checked"}[tr.Task]; got != want {
				t.Errorf("%s, %s: %s, want %s", tr.Task, r.Mode, got, want)
			}
		}
		if len(trials) != 8 {
			t.Errorf("%d trials, want two tasks in four modes", len(trials))
		}
	})
}
