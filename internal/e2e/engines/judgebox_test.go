package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A dataset in UniClawBench's layout names the image of the supervisor's sandbox, which
// has programs that the agent's has not.
func TestTheImageOfASupervisorsSandbox(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, machineFor(t, m.Name, debian).env())
		e2etest.Must(t, os.CopyFS(p.dir, os.DirFS(filepath.Join(tree, "examples", "uniclaw"))))
		text := p.read("berth.hcl")
		for old, with := range map[string]string{
			"environment = environment.local\n": "environment = environment." + m.Name + "\n",
			"agent = [agent.oracle, agent.nop]": "agent = [agent.oracle]",
			`format = "uniclaw"`:                "format = \"uniclaw\"\n  include = [\"103_services/stock\"]",
			`solutions = "solutions"`:           fmt.Sprintf("solutions = \"solutions\"\n    image = %q\n    judge_image = %q", debian, base),
			"  model = model.supervisor\n":      "  model = model.supervisor\n  config {\n    tools = \"sandbox\"\n  }\n",
		} {
			if !strings.Contains(text, old) {
				t.Fatalf("the example has no %q", old)
			}
			text = strings.Replace(text, old, with, 1)
		}
		p.write("berth.hcl", text)
		p.write("supervisor.yaml", `replies:
  - when: {turn: 0}
    tools: [{name: run, arguments: {command: "test -e /etc/debian_version; echo the agents image $?; ls -R attempt/artifacts /tmp_workspace/results | grep -c manifest.json"}}]
  - when: {last: "the agents image 1\\n1"}
    text: '{"verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": false, "score": 1, "confidence": "high", "rationale": "", "missing_artifacts": [], "guidance_tags": []}'
`)
		p.berth(0, "run", ".", "--require", "passed = planned")
		p.clean(m)
	})
}
