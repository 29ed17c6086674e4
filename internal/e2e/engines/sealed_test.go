package engines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// A sandbox without a network has only the interface lo, and its agent reaches
// its model.
func TestASealedSandboxHasLoAloneAndAModel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, m.env())
		p.task("sealed", "", ":", "ip -o link; if [ \"$(ip -o link | wc -l)\" = 1 ] && ip -o link | grep -q '1: lo:' && [ -e /app/asked ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt")
		p.experiment(m.Name, "", "")
		file := filepath.Join(p.dir, "berth.hcl")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		hcl := strings.Replace(string(text), "agent.oracle]", "agent.terminus]", 1)
		hcl = hcl[:strings.Index(hcl, "agent \"oracle\"")]
		p.write("berth.hcl", hcl+"agent \"terminus\" {\n  plugin = \"terminus\"\n  model  = model.scripted\n}\nmodel \"scripted\" {\n  provider = \"script\"\n  script   = \"./replies.yaml\"\n}\n")
		p.write("replies.yaml", `replies:
  - when: {turn: 0}
    text: |
      {"analysis": "A shell.", "plan": "Look at the links.", "commands": [{"keystrokes": "ip -o link; touch /app/asked; echo as''ked\n", "duration": 0.2}]}
  - when: {last: "(?m)^asked"}
    text: |
      {"analysis": "Only lo.", "plan": "Nothing is left to do.", "commands": [], "task_complete": true}
  - when: {last: "."}
    text: |
      {"analysis": "It goes on.", "plan": "Wait.", "commands": [{"keystrokes": "", "duration": 0.2}]}
`)
		p.berth(0, "run", ".")
		for _, tr := range p.show().Trials {
			if tr.Outcome != record.Passed {
				t.Errorf("%s: %+v", tr.Outcome, tr.Attempts)
			}
		}
	})
}
