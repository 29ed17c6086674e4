package engines

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// forgesAnswer makes a tool that forges the answer of the tests that call it.
const (
	forgesAnswer = "printf '#!/bin/sh\\necho 42\\n' > /bin/answer; chmod 755 /bin/answer"
	asksAnswer   = `if [ "$(answer)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt`
)

// A strict experiment verifies what is exposed again, with the system files of the
// image: each step of a task, and what follows the last round of another. Both
// verdicts are kept. If they differ, the result is a violation.
func TestAnExposedResultIsVerifiedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		t.Run("steps", func(t *testing.T) {
			t.Parallel()
			stepsAgain(t, m)
		})
		t.Run("rounds", func(t *testing.T) {
			t.Parallel()
			roundsAgain(t, m)
		})
	})
}

func stepsAgain(t *testing.T, m *machine) {
	t.Helper()
	p := newPlace(t, m.env())
	for name, test := range map[string]string{"forged": asksAnswer, "honest": testTiny} {
		toml := fmt.Sprintf("schema_version = \"1.4\"\n[task]\nname = \"engines/%s\"\n[environment]\ndocker_image = %q\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n", name, base)
		for _, step := range []string{"one", "two"} {
			toml += fmt.Sprintf("[[steps]]\nname = %q\n", step)
			dir := filepath.Join("tasks", name, "steps", step)
			p.write(filepath.Join(dir, "instruction.md"), "Do it.\n")
			p.write(filepath.Join(dir, "solution", "solve.sh"), "#!/bin/sh\n"+forgesAnswer+"\n"+solveTiny+"\n")
			p.write(filepath.Join(dir, "tests", "test.sh"), "#!/bin/sh\n"+test+"\n")
		}
		p.write(filepath.Join("tasks", name, "task.toml"), toml)
	}
	p.experiment(m.plugin, "", `integrity = "strict"`)
	p.berth(1, "run", ".", "--no-live")
	for _, tr := range p.show().Trials {
		want, integrity, again := record.IntegrityViolation, record.Violated, record.Failed
		if strings.HasSuffix(tr.Task, "honest") {
			want, integrity, again = record.Passed, record.Checked, record.Passed
		}
		r := e2etest.Result(t, tr.Attempts[0].Dir)
		if len(r.Stages) != 2 || r.Outcome != want || r.Integrity != integrity {
			t.Fatalf("%s: %d steps, %s, %s; want 2, %s, %s: %+v %+v", tr.Task, len(r.Stages), r.Outcome, r.Integrity, want, integrity, r.Findings, r.Error)
		}
		for _, s := range r.Stages {
			if s.Again == nil || s.Again.Outcome != again || len(s.Again.Verdicts) != 1 {
				t.Errorf("%s, step %s: second verification %+v; want %s", tr.Task, s.Name, s.Again, again)
			}
		}
	}
	p.clean(m)
}

func roundsAgain(t *testing.T, m *machine) {
	t.Helper()
	p := newPlace(t, m.env())
	p.judgeBox(m.plugin)
	p.write("tasks/box/tests/test.sh", "#!/bin/sh\n"+asksAnswer+"\n")
	for _, change := range [][3]string{
		{"worker.yaml", "echo one", strings.ReplaceAll(forgesAnswer, `\`, `\\`) + "; echo one"},
		{"judge.yaml", "; sleep 5", ""},
		{"berth.hcl", `"score"`, `"reward"`},
		{"berth.hcl", "  model       = model.worker\n", "  model       = model.worker\n  integrity   = \"strict\"\n"},
	} {
		text := p.read(change[0])
		if !strings.Contains(text, change[1]) {
			t.Fatalf("%s has no %q", change[0], change[1])
		}
		p.write(change[0], strings.ReplaceAll(text, change[1], change[2]))
	}
	p.berth(1, "run", ".", "--no-live")
	r := e2etest.Result(t, p.show().Trials[0].Attempts[0].Dir)
	again := r.Stages[0].Again
	if r.Outcome != record.IntegrityViolation || r.Integrity != record.Violated || again == nil || again.Outcome != record.Failed || len(again.Verdicts) != 2 {
		t.Errorf("%s, %s, second verification %+v; want a violation, and the verdicts of both verifiers: %+v %+v", r.Outcome, r.Integrity, again, r.Findings, r.Error)
	}
	p.clean(m)
}
