package compose

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// A stage of a Dockerfile with an argument, a volume that main cannot write to,
// a variable of the host, and an entrypoint that gets the idle command.
const (
	optionsFile = `services:
  main:
    image: ` + image + `
    entrypoint: ["/bin/sh", "-c", "sleep 1; echo $$ANSWER > /tmp/ready; exec \"$$@\"", "entry"]
    environment: {ANSWER: "${COMPOSE_ANSWER}", OTHER: "${COMPOSE_OTHER:-usual}"}
    volumes: ["shared:/shared:ro"]
    depends_on:
      fill: {condition: service_completed_successfully}
  fill:
    build: {context: ./fill, target: first, args: {WORD: given}}
    volumes: ["shared:/shared"]
volumes:
  shared:
`
	optionsBuild = "FROM " + image + ` AS first
ARG WORD=none
ENV WORD=$WORD
CMD ["/bin/sh", "-c", "echo $WORD > /shared/word"]
FROM first
CMD ["/bin/sh", "-c", "echo last > /shared/word"]
`
	optionsSolve = "#!/bin/sh\ncat /tmp/ready > /app/answer\n"
	optionsTest  = `#!/bin/sh
set -x
ok=1
[ "$(cat /app/answer)" = 42 ] || ok=0
[ "$OTHER" = usual ] || ok=0
[ "$(cat /shared/word)" = given ] || ok=0
touch /shared/mine && ok=0
echo $ok > /logs/verifier/reward.txt
`
)

func TestBuildOptionsReadOnlyVolumesAndHostVariables(t *testing.T) {
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			e := find(t, name)
			files := database(e, optionsFile)
			files["tasks/database/task.toml"] = "schema_version = \"1.4\"\n[task]\nname = \"e2e/options\"\n[environment]\nworkdir = \"/app\"\nnetwork_mode = \"no-network\"\n"
			files["tasks/database/environment/fill/Dockerfile"] = optionsBuild
			files["tasks/database/solution/solve.sh"], files["tasks/database/tests/test.sh"] = optionsSolve, optionsTest
			files["experiment.hcl"] = strings.Replace(files["experiment.hcl"], "  path   = \"./tasks\"\n", "  path   = \"./tasks\"\n  allow_env = [\"COMPOSE_ANSWER\"]\n", 1)
			results, _ := e.run(t, e.folder(t, files), 0)
			if o, n := results["oracle"], results["nop"]; o.Outcome != record.Passed || n.Outcome != record.Failed {
				t.Errorf("oracle %s (%+v, %+v), nop %s", o.Outcome, o.Error, o.Findings, n.Outcome)
			}
		})
	}
}
