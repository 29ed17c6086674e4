package compose

import (
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// Main and two services listen on one port, and one service asks another.
const (
	onePortFile = `services:
  main:
    image: ` + image + `
    depends_on: {front: {condition: service_healthy}}
  back:
    image: ` + image + `
    command: [redis-server, --save, "", --port, "6379", --protected-mode, "no"]
    healthcheck: {test: ["CMD", "redis-cli", "set", "who", "back"], interval: 1s, retries: 60}
  front:
    image: ` + image + `
    command: [redis-server, --save, "", --port, "6379", --protected-mode, "no", --replicaof, back, "6379"]
    depends_on: {back: {condition: service_healthy}}
    healthcheck: {test: ["CMD-SHELL", "redis-cli get who | grep back && redis-cli -h back set asked yes"], interval: 1s, retries: 60}
`
	onePortSolve = `#!/bin/sh
redis-server --save '' --port 6379 --protected-mode no &
until redis-cli set who main; do sleep 0.1; done
redis-cli -h main get who > /tmp/main
redis-cli shutdown nosave
wait
`
	onePortTest = `#!/bin/sh
set -x
ok=1
[ "$(redis-cli -h back get asked)" = yes ] || ok=0
redis-cli -h back role | grep -q master || ok=0
redis-cli -h front role | grep -q slave || ok=0
[ "$(cat /tmp/main)" = main ] || ok=0
grep -q '^CapBnd:.*[13579bdf][0-9a-f][0-9a-f][0-9a-f]$' /proc/1/status && ok=0
grep -v Iface /proc/net/route | grep -v 00FF1EAC && ok=0
echo $ok > /logs/verifier/reward.txt
`
)

func TestServicesOnOnePort(t *testing.T) {
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			e := find(t, name)
			files := database(e, onePortFile)
			files["tasks/database/task.toml"] = "schema_version = \"1.4\"\n[task]\nname = \"e2e/one-port\"\n[environment]\nnetwork_mode = \"no-network\"\n"
			files["tasks/database/solution/solve.sh"] = onePortSolve
			files["tasks/database/tests/test.sh"] = onePortTest
			results, folders := e.run(t, e.folder(t, files), 0)
			if o, n := results["oracle"], results["nop"]; o.Outcome != record.Passed || n.Outcome != record.Failed {
				t.Errorf("oracle %s (%+v, %+v), nop %s: %s", o.Outcome, o.Error, o.Findings, n.Outcome, folders["oracle"])
			}
		})
	}
}
