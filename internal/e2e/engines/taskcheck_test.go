package engines

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
)

// A task is checked in each mode of an engine. Its image had a file of the tests,
// which a later line of its Dockerfile removes.
func TestATaskIsCheckedOnAnEngine(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, m.env())
		for name, text := range map[string]string{
			"task.toml": "schema_version = \"1.4\"\nartifacts = [\"/app/answer\"]\n[task]\nname = \"engines/leaky\"\n" +
				"[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n",
			"instruction.md":         "Write 42 into answer.\n",
			"environment/Dockerfile": "FROM " + base + "\nWORKDIR /app\nCOPY notes /opt/notes\n",
			"environment/notes":      "the answer to the whole task\n",
			"tests/expected":         "the answer to the whole task\n",
			"tests/test.sh":          "#!/bin/sh\ncd /app\n[ \"$(cat answer)\" = 42 ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n",
			"solution/solve.sh":      "#!/bin/sh\necho 42 > /app/answer\n",
		} {
			p.write("leaky/"+name, text)
		}
		var got output.TaskCheck
		if err := json.Unmarshal([]byte(p.berth(1, "task", "check", "--run", "leaky", "--repeat", "1", "--environment", m.plugin, "--json")), &got); err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, v := range got.Tasks[0].Run.Verdicts {
			texts = append(texts, fmt.Sprintf("%s %s: %s %s:%d %s", v.Check, v.Mode, v.Verdict, v.File, v.Line, v.Detail))
		}
		all := "\n" + strings.Join(texts, "\n")
		for _, mode := range []string{"live", "restarted", "image", "separate"} {
			for _, want := range []string{"oracle " + mode + ": held :0 passed 1 of 1", "nop " + mode + ": held :0 passed 0 of 1"} {
				if !strings.Contains(all, "\n"+want) {
					t.Errorf("no %q in %s", want, all)
				}
			}
		}
		for _, want := range []string{"answers : failed tests/expected:0 the agent can read it as /opt/notes", "history : held"} {
			if !strings.Contains(all, "\n"+want) {
				t.Errorf("no %q in %s", want, all)
			}
		}
		if got.Tasks[0].Run.Failed != 1 {
			t.Errorf("%d checks failed: %s", got.Tasks[0].Run.Failed, all)
		}
	})
}
