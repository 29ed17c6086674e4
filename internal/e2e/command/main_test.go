package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
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
	(&e2etest.Task{Name: "e2e/" + name, Solve: solution, Test: e2etest.TestTiny}).Write(t, dir)
}

// experiment writes an experiment over ./tasks.
func experiment(t *testing.T, dir, agents, extra string) {
	t.Helper()
	body := "matrix {\n    agent = [" + agents + "]\n  }\n" + extra
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": e2etest.Experiment("local", "", body, "")})
}
