package compose

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// feature is a task of several containers that the oracle passes and nop does not.
type feature struct {
	file, solve, test string
	more              string // of task.toml
	build             string // Dockerfile of the service fill; empty: the usual one
}

var features = map[string]feature{
	// A service has a host name and aliases, by which main and the other service
	// reach it; main has a host name, too.
	"host names": {
		file: `services:
  main:
    image: ` + image + `
    hostname: work
    networks: {inner: {aliases: [desk]}}
    depends_on: {asks: {condition: service_completed_successfully}}
  db:
    image: ` + image + `
    hostname: db.internal
    networks: {inner: {aliases: [cache, Store]}}
    command: [sh, -c, 'redis-server --save "" --protected-mode no & until redis-cli set name "$$(hostname) $$HOSTNAME"; do sleep 0.1; done; wait']
    healthcheck: {test: ["CMD-SHELL", "redis-cli get name | grep ."], interval: 1s, retries: 60}
  asks:
    image: ` + image + `
    networks: [inner]
    command: [sh, -c, 'redis-cli -h cache set asked "$$(redis-cli -h db.internal get name)" && grep -w desk /etc/hosts && grep -w work /etc/hosts']
    depends_on: {db: {condition: service_healthy}}
networks:
  inner:
`,
		solve: "touch /tmp/done\n",
		test: `i=0 # the service that asks may not have been answered yet
until [ -n "$(redis-cli -h store get asked)" ] || [ $((i += 1)) -gt 100 ]; do sleep 0.1; done
[ "$(redis-cli -h store get asked)" = "db.internal db.internal" ] || ok=0
[ "$(redis-cli -h db get asked)" = "db.internal db.internal" ] || ok=0
[ "$(hostname)" = work ] && [ "$HOSTNAME" = work ] || ok=0
[ -e /tmp/done ] || ok=0
`,
	},
	// A stage of a Dockerfile with an argument, a volume that main cannot write to,
	// a variable of the host, and an entrypoint that gets the idle command.
	"options": {
		file: `services:
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
`,
		build: "FROM " + image + ` AS first
ARG WORD=none
ENV WORD=$WORD
CMD ["/bin/sh", "-c", "echo $WORD > /shared/word"]
FROM first
CMD ["/bin/sh", "-c", "echo last > /shared/word"]
`,
		more:  "workdir = \"/app\"\n",
		solve: "cat /tmp/ready > /app/answer\n",
		test: `[ "$(cat /app/answer)" = 42 ] || ok=0
[ "$OTHER" = usual ] || ok=0
[ "$(cat /shared/word)" = given ] || ok=0
touch /shared/mine && ok=0
`,
	},
}

func TestFeaturesOfComposeFiles(t *testing.T) {
	for _, engine := range []string{"docker", "podman"} {
		for name, f := range features {
			t.Run(engine+"/"+name, func(t *testing.T) {
				e := find(t, engine)
				files := database(e, f.file)
				files["tasks/database/task.toml"] = "schema_version = \"1.4\"\n[task]\nname = \"e2e/feature\"\n[environment]\nnetwork_mode = \"no-network\"\n" + f.more
				files["tasks/database/solution/solve.sh"] = "#!/bin/sh\n" + f.solve
				files["tasks/database/tests/test.sh"] = "#!/bin/sh\nset -x\nok=1\n" + f.test + "echo $ok > /logs/verifier/reward.txt\n"
				if f.build != "" {
					files["tasks/database/environment/fill/Dockerfile"] = f.build
				}
				files["experiment.hcl"] = strings.Replace(files["experiment.hcl"], "  path   = \"./tasks\"\n", "  path   = \"./tasks\"\n  allow_env = [\"COMPOSE_ANSWER\"]\n", 1)
				results, folders := e.run(t, e.folder(t, files), 0)
				if o, n := results["oracle"], results["nop"]; o.Outcome != record.Passed || n.Outcome != record.Failed {
					t.Errorf("oracle %s (%+v, %+v), nop %s: %s", o.Outcome, o.Error, o.Findings, n.Outcome, folders["oracle"])
				}
			})
		}
	}
}
