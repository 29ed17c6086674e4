package compose

import (
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// A service has a host name and aliases, by which main and the other service
// reach it; main has a host name, too.
const (
	hostNamesFile = `services:
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
`
	hostNamesTest = `#!/bin/sh
set -x
ok=1
i=0 # the service that asks may not have been answered yet
until [ -n "$(redis-cli -h store get asked)" ] || [ $((i += 1)) -gt 100 ]; do sleep 0.1; done
[ "$(redis-cli -h store get asked)" = "db.internal db.internal" ] || ok=0
[ "$(redis-cli -h db get asked)" = "db.internal db.internal" ] || ok=0
[ "$(hostname)" = work ] && [ "$HOSTNAME" = work ] || ok=0
[ -e /tmp/done ] || ok=0
echo $ok > /logs/verifier/reward.txt
`
)

func TestHostNamesAndAliases(t *testing.T) {
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			e := find(t, name)
			files := database(e, hostNamesFile)
			files["tasks/database/task.toml"] = "schema_version = \"1.4\"\n[task]\nname = \"e2e/names\"\n[environment]\nnetwork_mode = \"no-network\"\n"
			files["tasks/database/solution/solve.sh"] = "#!/bin/sh\ntouch /tmp/done\n"
			files["tasks/database/tests/test.sh"] = hostNamesTest
			results, folders := e.run(t, e.folder(t, files), 0)
			if o, n := results["oracle"], results["nop"]; o.Outcome != record.Passed || n.Outcome != record.Failed {
				t.Errorf("oracle %s (%+v, %+v), nop %s: %s", o.Outcome, o.Error, o.Findings, n.Outcome, folders["oracle"])
			}
		})
	}
}
