package compose

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// The task has a database, which another container fills when it is healthy,
// and a test that queries it.
const (
	composeFile = `services:
  main:
    image: ` + image + `
    environment: {DB_HOST: db}
    depends_on:
      fill: {condition: service_completed_successfully}
    volumes: ["shared:/shared"]
  db:
    image: ` + image + `
    command: [redis-server, --save, "", --appendonly, "no", --protected-mode, "no", --dir, /shared]
    healthcheck:
      test: ["CMD", "redis-cli", "ping"]
      interval: 1s
      retries: 60
    expose: [6379]
    volumes: ["shared:/shared"]
  fill:
    build: ./fill
    depends_on:
      db: {condition: service_healthy}
volumes:
  shared:
`
	taskFile = `schema_version = "1.4"
[task]
name = "e2e/database"
[agent]
timeout_sec = 300
[verifier]
timeout_sec = 60
[[verifier.collect]]
command = "redis-cli dbsize > /tmp/size && echo $HOSTNAME"
service = "db"
[environment]
network_mode = "no-network"
[[artifacts]]
source = "/tmp/size"
service = "db"
`
	testScript = `#!/bin/sh
set -x
ok=1
[ "$(redis-cli -h "$DB_HOST" get answer)" = 42 ] || ok=0
[ "$(redis-cli -h "$DB_HOST" get seed)" = planted ] || ok=0
[ "$(cat /shared/mark)" = marked ] || ok=0
[ "$(grep -c 00FF1EAC /proc/net/route)" = 1 ] && [ "$(grep -c -v Iface /proc/net/route)" = 1 ] || ok=0
echo $ok > /logs/verifier/reward.txt
`
)

func database(e engine, compose string) map[string]string {
	return map[string]string{
		"tasks/database/task.toml":                       taskFile,
		"tasks/database/instruction.md":                  "Set the key answer of the database at db to 42.\n",
		"tasks/database/environment/docker-compose.yaml": compose,
		"tasks/database/environment/fill/Dockerfile":     "FROM " + image + "\nCOPY fill.sh /fill.sh\nCMD [\"/bin/sh\", \"/fill.sh\"]\n",
		"tasks/database/environment/fill/fill.sh":        "redis-cli -h db set seed planted && redis-cli -h db config set dbfilename x && echo filled\n",
		"tasks/database/solution/solve.sh":               "#!/bin/sh\nredis-cli -h db set answer 42 && echo marked > /shared/mark\n",
		"tasks/database/tests/test.sh":                   testScript,
		"experiment.hcl": `experiment "compose" {
  datasets    = [dataset.tasks]
  environment = environment.here
  matrix {
    agent = [agent.oracle, agent.nop]
  }
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "here" {
  plugin = "` + e.Name + `"
  config {
    socket = "` + e.Socket + `"
  }
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "nop" {
  plugin = "nop"
}
`,
	}
}

func TestATaskWithADatabase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := find(t, name)
			results, folders := e.run(t, e.folder(t, database(e, composeFile)), 0)
			if o, n := results["oracle"].Outcome, results["nop"].Outcome; o != record.Passed || n != record.Failed {
				t.Errorf("oracle %s, nop %s", o, n)
			}
			oracle(t, results["oracle"], folders["oracle"])
			e.leftNothing(t, results["oracle"].Run)
		})
	}
}

// oracle checks the attempt of the oracle.
func oracle(t *testing.T, r record.Result, folder string) {
	t.Helper()
	if r.Integrity != record.Checked || r.SameAs != "restarted" {
		t.Errorf("what sidecars listen on counts as the agent's: %s, same as %q: %+v", r.Integrity, r.SameAs, r.Findings)
	}
	started := map[string]record.Phase{}
	for _, p := range r.Phases {
		if p.Service != "" {
			started[p.Service] = p
		}
	}
	if len(started) != 2 || started["fill"].Start.Before(started["db"].End) || started["db"].Who != record.ByEnvironment {
		t.Errorf("phases of sidecars: %+v", started)
	}
	if len(r.Sidecars) != 2 || r.Sidecars[0].Name != "db" || r.Sidecars[0].Exit != nil || r.Sidecars[1].Exit == nil || *r.Sidecars[1].Exit != 0 {
		t.Errorf("sidecars: %+v", r.Sidecars)
	}
	for file, want := range map[string]string{
		"sidecars/db.log": "Ready to accept connections", "sidecars/fill.log": "filled", "artifacts/tmp/size": "2",
	} {
		if text, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(file))); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %q, %v; want %q in it", file, text, err, want)
		}
	}
}

func TestASidecarThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := find(t, name)
			for want, file := range map[string]string{
				`sidecar "db": not healthy`: strings.Replace(composeFile, "redis-server, --save", "redis-server, --no-such", 1),
				`sidecar "fill": ended`:     strings.Replace(composeFile, "build: ./fill", "image: "+image+"\n    command: [sh, -c, 'echo gave up; exit 3']", 1),
			} {
				results, folders := e.run(t, e.folder(t, database(e, file)), 1)
				r := results["oracle"]
				if r.Outcome != record.EnvironmentError || r.Error == nil || !strings.Contains(r.Error.Message, want) || r.Error.Boundary != record.ByEnvironment {
					t.Errorf("got %s, %+v; want %s", r.Outcome, r.Error, want)
				}
				log, err := filepath.Glob(filepath.Join(folders["oracle"], "sidecars", "*.log"))
				if err != nil || len(log) == 0 {
					t.Errorf("no log of a sidecar in %s", folders["oracle"])
				}
				e.leftNothing(t, r.Run)
			}
		})
	}
}

const (
	hostsAsk = `ask() { (echo "CONNECT $1:PORT HTTP/1.1"; echo; echo "GET / HTTP/1.0"; echo) | nc 127.0.0.1 ${http_proxy##*:} | grep -q served; }
`
	hostsFile = `services:
  main:
    image: localhost/berth-test/base:1
    volumes: ["shared:/shared"]
    depends_on:
      side: {condition: service_completed_successfully}
  side:
    image: localhost/berth-test/base:1
    command:
      - sh
      - -c
      - '(echo "CONNECT 127.0.0.1:PORT HTTP/1.1"; echo; echo "GET / HTTP/1.0"; echo) | nc 127.0.0.1 $${http_proxy##*:} | grep served && touch /shared/done'
    volumes: ["shared:/shared"]
volumes:
  shared:
`
	hostsTask = `schema_version = "1.4"
[task]
name = "e2e/hosts"
[environment]
network_mode = "allowlist"
allowed_hosts = ["127.0.0.1"]
`
)

// A sandbox without a network reaches the listed address through the core, and
// so does its sidecar; they cannot reach the next port of the same machine.
func TestAListOfHosts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := find(t, name)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }))
			defer server.Close()
			_, port, err := net.SplitHostPort(server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			// The image of busybox alone: its nc is no good beside another libc.
			files := database(e, strings.ReplaceAll(hostsFile, "PORT", port))
			files["tasks/database/task.toml"] = hostsTask
			files["tasks/database/solution/solve.sh"] = "#!/bin/sh\n" + strings.ReplaceAll(hostsAsk, "PORT", port) + "ask 127.0.0.1 && ! ask 127.0.0.2 && touch /tmp/done\n"
			files["tasks/database/tests/test.sh"] = "#!/bin/sh\nif [ -e /tmp/done ] && [ -e /shared/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
			files["experiment.hcl"] = strings.Replace(files["experiment.hcl"], "  config {\n", "  network     = \"allow\"\n  allow_hosts = [\"127.0.0.1\"]\n  config {\n", 1)
			results, _ := e.run(t, e.folder(t, files), 0)
			r := results["oracle"]
			if r.Outcome != record.Passed || !slices.ContainsFunc(r.Findings, func(f record.Finding) bool {
				return f.Code == "host_refused" && strings.HasPrefix(f.Text, "127.0.0.2 ")
			}) {
				t.Errorf("got %s, %+v, %+v", r.Outcome, r.Error, r.Findings)
			}
		})
	}
}

// leftNothing checks that nothing of a run is left in the engine.
func (e engine) leftNothing(t *testing.T, run string) {
	t.Helper()
	for _, what := range [][]string{{"ps", "--all", "--quiet"}, {"volume", "ls", "--quiet"}} {
		if out, err := e.ask(t, slices.Concat(what, []string{"--filter", "label=dev.berth.owner=" + run})...); err != nil || out != "" {
			t.Errorf("%s of %s: %q, %v; want none", strings.Join(what, " "), run, out, err)
		}
	}
}

// The second sandbox has sidecars of its own, whose output is kept beside that of
// the agent's.
func TestSidecarsOfASeparateVerifierAreKeptApart(t *testing.T) {
	t.Parallel()
	e := find(t, "docker")
	files := database(e, "services:\n  main:\n    image: "+image+"\n  side:\n    image: "+image+
		"\n    command: [sh, -c, 'echo began at $$(cat /proc/sys/kernel/random/uuid); sleep infinity']\n")
	files["tasks/database/task.toml"] = "schema_version = \"1.4\"\nartifacts = [\"/answer\"]\n[task]\nname = \"e2e/apart\"\n[environment]\nnetwork_mode = \"no-network\"\n"
	files["tasks/database/solution/solve.sh"] = "#!/bin/sh\necho 42 > /answer\n"
	files["tasks/database/tests/test.sh"] = "#!/bin/sh\ngrep -c 42 /answer > /logs/verifier/reward.txt\n"
	files["experiment.hcl"] = strings.Replace(files["experiment.hcl"], "  matrix {\n    agent = [agent.oracle, agent.nop]\n  }", "  verify = \"separate\"\n  agent  = agent.oracle", 1)
	results, folders := e.run(t, e.folder(t, files), 0)
	for key, r := range results {
		own, err := os.ReadFile(filepath.Join(folders[key], "sidecars", "side.log"))
		second, failed := os.ReadFile(filepath.Join(folders[key], "sidecars", "verifier-1", "side.log"))
		if errors.Join(err, failed) != nil || r.Outcome != record.Passed || !strings.Contains(string(own), "began at ") || bytes.Equal(own, second) ||
			len(r.Sidecars) != 1 || r.Sidecars[0].Log != "sidecars/side.log" {
			t.Errorf("%s, %v, sidecars %+v: %q and %q", r.Outcome, errors.Join(err, failed), r.Sidecars, own, second)
		}
	}
}
