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

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/schemas"
)

var tree e2etest.Checkout

func TestMain(m *testing.M) { os.Exit(testlevel.Main("test-e2e", func() int { return tree.Main(m) })) }

// result is the result of a command.
type result struct {
	code        int
	out, stderr string
}

// berth runs the program in dir.
func berth(t *testing.T, dir string, args ...string) result {
	t.Helper()
	cmd, out, stderr := tree.Command(t, dir, args...)
	return ended(t, cmd, cmd.Run(), out, stderr)
}

func ended(t *testing.T, cmd *exec.Cmd, err error, out, stderr *bytes.Buffer) result {
	t.Helper()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, stderr)
	}
	e2etest.Audited(t, cmd, cmd.ProcessState.ExitCode())
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
	e2etest.Write(t, filepath.Join(dir, name), map[string]string{
		"task.toml": fmt.Sprintf("schema_version = \"1.4\"\n[task]\nname = \"e2e/%s\"\n[agent]\ntimeout_sec = 600\n[verifier]\ntimeout_sec = 60\n"+
			"[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n", name),
		"instruction.md":         "Write the file done.\n",
		"environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
		"solution/solve.sh":      "#!/bin/sh\n" + solution + "\n",
		"tests/test.sh":          "#!/bin/sh\nif [ -e /app/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
	})
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
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": text})
}
