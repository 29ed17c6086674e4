package harbor

import (
	"reflect"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

const composed = `services:
  main:
    user: agent
    working_dir: /srv
    command: [serve]
    environment: {A: file, B: file}
    depends_on: {db: {condition: service_healthy}}
    healthcheck: {test: [CMD, probe]}
    volumes: ["data:/data"]
  db:
    build: ./db
    healthcheck: {test: [CMD, ping]}
    volumes: ["data:/db"]
volumes: {data: {}}
`

func TestComposeFile(t *testing.T) {
	f := minimal().with(
		"environment/docker-compose.yaml", composed, "environment/db/Dockerfile", "FROM debian\n",
		"task.toml", "[environment.env]\nA = \"toml\"\n[[verifier.collect]]\ncommand = \"true\"\nservice = \"db\"\n",
	)
	got, problems := f.load(t, task.Options{})
	if got == nil {
		t.Fatal(problems)
	}
	e := got.Environment
	if e.Compose != "" || e.Workdir != "/srv" || e.User != "agent" || !reflect.DeepEqual(e.Command, []string{"serve"}) ||
		!reflect.DeepEqual(e.Env, task.Text(map[string]string{"A": "toml", "B": "file"})) ||
		!reflect.DeepEqual(e.DependsOn, map[string]string{"db": task.StateHealthy}) ||
		!reflect.DeepEqual(e.Volumes, []task.Volume{{Name: "data", Target: "/data"}}) || got.Healthcheck == nil {
		t.Errorf("main: %+v, health %+v", e, got.Healthcheck)
	}
	if s := got.Stages[0]; s.Agent.User != "agent" || s.Verify.User != "agent" || s.Hooks[0].Service != "db" {
		t.Errorf("stage: %+v", s)
	}
	if len(e.Sidecars) != 1 || e.Sidecars[0].Build.Context != "environment/db" || e.Sidecars[0].Build.Digest == "" || e.Sidecars[0].Build.Digest == e.Build.Digest {
		t.Errorf("sidecars: %+v", e.Sidecars)
	}
	if v := got.View(task.RoleAgent, got.Stages[0].Name).Environment; v.Sidecars != nil || v.Command != nil || v.DependsOn != nil || v.Volumes != nil {
		t.Errorf("the agent sees %+v", v)
	}
	other, _ := f.with("environment/docker-compose.yaml", strings.Replace(composed, "probe", "other", 1)).load(t, task.Options{})
	if other == nil || other.Digest == got.Digest {
		t.Error("the task's digest does not cover the file")
	}
}

// A build of the task's own folder does not see the tests and the solution, and what
// is in them does not change the image.
func TestABuildOfTheTasksFolder(t *testing.T) {
	f := minimal().with(
		"environment/docker-compose.yaml", "services:\n  main:\n    build: {context: .., dockerfile: environment/Dockerfile}\n",
		"environment/Dockerfile", "FROM debian\n", "tests/test.sh", "one\n", "solution/solve.sh", "two\n",
	)
	got, problems := f.load(t, task.Options{})
	if got == nil {
		t.Fatal(problems)
	}
	b := got.Environment.Build
	if b == nil || b.Context != "." || b.File != "environment/Dockerfile" || !reflect.DeepEqual(b.Exclude, []string{"solution", "tests"}) {
		t.Fatalf("%+v", b)
	}
	other, _ := f.with("tests/test.sh", "three\n").load(t, task.Options{})
	if other == nil || other.Environment.Build.Digest != b.Digest {
		t.Error("the tests change the image")
	}
}

// Files of the task are copied into the image, whether it is named or built.
func TestFilesOfAComposeFile(t *testing.T) {
	f := minimal().with(
		"environment/docker-compose.yaml", `services:
  main:
    volumes: ["./a.txt:/etc/a:ro"]
  db:
    image: postgres:16
    volumes: ["./init:/init:ro"]
  twin:
    image: ${MAIN_IMAGE_NAME}
`, "environment/Dockerfile", "FROM debian", "environment/a.txt", "A", "environment/init/b c.sql", "B",
	)
	got, problems := f.load(t, task.Options{})
	if got == nil {
		t.Fatal(problems)
	}
	e := got.Environment
	want := map[string][]byte{"berth.copies.Dockerfile": []byte("FROM debian\nCOPY [\"berth.copies/0\",\"/etc/a\"]\n"), "berth.copies/0": []byte("A")}
	if e.Build == nil || e.Build.File != "berth.copies.Dockerfile" || !reflect.DeepEqual(e.Build.Files, want) {
		t.Errorf("main: %+v", e.Build)
	}
	want = map[string][]byte{"berth.copies.Dockerfile": []byte("FROM postgres:16\nCOPY [\"berth.copies/0\",\"/init/b c.sql\"]\n"), "berth.copies/0": []byte("B")}
	if db := e.Sidecars[0]; db.Image != "" || db.Build == nil || !reflect.DeepEqual(db.Build.Files, want) {
		t.Errorf("db: %+v", db.Build)
	}
	if twin := e.Sidecars[1]; twin.Build == nil || twin.Build.Files != nil || twin.Build.Digest == e.Build.Digest {
		t.Errorf("twin: %+v", twin.Build)
	}
	other, _ := f.with("environment/init/b c.sql", "C").load(t, task.Options{})
	if other == nil || other.Environment.Sidecars[0].Build.Digest == e.Sidecars[0].Build.Digest {
		t.Error("the content of a file does not change the image")
	}
}

func TestComposeFileWithProblems(t *testing.T) {
	f := minimal().with("environment/db/Dockerfile", "FROM debian\n")
	for name, tt := range map[string]struct {
		f    files
		want string
	}{
		"danger":              {f.with("environment/docker-compose.yaml", strings.Replace(composed, "user: agent", "privileged: true", 1)), "environment/docker-compose.yaml:3:5: privileged is refused"},
		"no Dockerfile":       {f.with("environment/docker-compose.yaml", composed, "environment/db/Dockerfile", ""), "Dockerfile is missing"},
		"health twice":        {f.with("environment/docker-compose.yaml", composed, "task.toml", "[environment.healthcheck]\ncommand = \"x\"\n"), "Said twice"},
		"build out of folder": {f.with("environment/docker-compose.yaml", strings.Replace(composed, "./db", "../tests", 1)), "environment/docker-compose.yaml:11:5: Build is not of the task's own folder"},
	} {
		got, problems := tt.f.load(t, task.Options{})
		found := false
		for _, p := range problems {
			found = found || strings.Contains(p.String(), tt.want)
		}
		if got != nil || !found {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestVariablesOfAComposeFile(t *testing.T) {
	got, problems := minimal().with("environment/docker-compose.yaml", `services:
  main:
    build: {context: "${CONTEXT_DIR}"}
    image: ${MAIN_IMAGE_NAME}
    environment: {TEST_DIR: "${TEST_DIR}"}
    volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}", "${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}"]
    deploy: {resources: {limits: {cpus: "${CPUS}", memory: "${MEMORY}"}}}
  twin:
    image: ${MAIN_IMAGE_NAME}
    command: [serve]
`, "task.toml", "[environment]\ncpus = 2\nmemory_mb = 1024\n").load(t, task.Options{})
	if got == nil {
		t.Fatal(problems)
	}
	e := got.Environment
	if e.Build == nil || e.Build.Context != "environment" || e.Image != "" || e.Env["TEST_DIR"].Text != "/tests" || len(e.Volumes) > 0 ||
		e.Limits.CPUMilli != 2000 || e.Limits.MemoryMiB != 1024 || len(e.Sidecars) != 1 || e.Sidecars[0].Build != e.Build {
		t.Errorf("%+v, %v", e, problems)
	}
}
