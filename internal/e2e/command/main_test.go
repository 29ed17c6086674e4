package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/schemas"
)

var (
	root   string // of the tree
	binary string // bin/berth in it
	local  string // why no sandbox can be made here, or empty
)

func TestMain(m *testing.M) { os.Exit(setUp(m)) }

func setUp(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "command:", err)
		return 1
	}
	var err error
	if root, err = filepath.Abs("../../.."); err != nil {
		return fail(err)
	}
	build := exec.Command(filepath.Join(root, "scripts", "build")) //nolint:noctx // before any test there is no context
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, buildErr := build.CombinedOutput(); buildErr != nil {
		return fail(fmt.Errorf("%w\n%s", buildErr, out))
	}
	binary = filepath.Join(root, "bin", "berth")
	runtime, err := os.MkdirTemp("/tmp", "be2")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(runtime) }()
	if err = os.Setenv("BERTH_RUNTIME_DIR", runtime); err != nil {
		return fail(err)
	}
	out, err := exec.Command(binary, "doctor").CombinedOutput() //nolint:noctx // the same
	if err != nil {
		local = fmt.Sprintf("no sandbox can be made here: %s", out)
	}
	return m.Run()
}

// needsSandbox skips where this machine forbids sandboxes.
func needsSandbox(t *testing.T) {
	t.Helper()
	if local != "" {
		t.Skip(local)
	}
}

// result is what a command did.
type result struct {
	code        int
	out, stderr string
}

// prepare makes a command of berth in dir.
func prepare(t *testing.T, dir string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	cmd.WaitDelay = 10 * time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	return cmd, &out, &stderr
}

// berth runs the program in dir.
func berth(t *testing.T, dir string, args ...string) result {
	t.Helper()
	cmd, out, stderr := prepare(t, dir, args...)
	return ended(t, cmd, cmd.Run(), out, stderr)
}

func ended(t *testing.T, cmd *exec.Cmd, err error, out, stderr *bytes.Buffer) result {
	t.Helper()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, stderr)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}
}

// want fails unless the command ended with the code.
func (r result) want(t *testing.T, code int) {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", r.code, code, r.out, r.stderr)
	}
}

// answer reads what a command printed with --json, and checks its schema.
func answer[T any](t *testing.T, r result, schema string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s\n%s", err, r.out, r.stderr)
	}
	if err := schemas.Check(schema, []byte(r.out)); err != nil {
		t.Errorf("%v", err)
	}
	return v
}

// task writes a task that the oracle solves with the script solution.
func task(t *testing.T, dir, name, solution string) {
	t.Helper()
	write(t, filepath.Join(dir, name), map[string]string{
		"task.toml": fmt.Sprintf("schema_version = \"1.4\"\n[task]\nname = \"e2e/%s\"\n[agent]\ntimeout_sec = 600\n[verifier]\ntimeout_sec = 60\n"+
			"[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n", name),
		"instruction.md":         "Write the file done.\n",
		"environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
		"solution/solve.sh":      "#!/bin/sh\n" + solution + "\n",
		"tests/test.sh":          "#!/bin/sh\nif [ -e /app/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
	})
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil { //nolint:gosec // scripts
			t.Fatal(err)
		}
	}
}

// experiment writes an experiment over ./tasks.
func experiment(t *testing.T, dir, agents, extra string) {
	t.Helper()
	text := fmt.Sprintf(`experiment "e2e" {
  datasets    = [dataset.tasks]
  environment = environment.local
  matrix {
    agent = [%s]
  }
%s
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "local" {
  plugin = "local"
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "nop" {
  plugin = "nop"
}
`, agents, extra)
	write(t, dir, map[string]string{"experiment.hcl": text})
}
