package compose

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// top is a short folder that every user may read; bin in it has the programs of
// a release.
var top, bin string

func TestMain(m *testing.M) {
	os.Exit(testlevel.Main("test-engines", func() int {
		defer func() { _ = os.RemoveAll(top) }()
		if err := build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}))
}

// build makes the programs once for all tests.
func build() (err error) {
	if top, err = os.MkdirTemp(testlevel.Tmp(), "bc"); err != nil { // short, because sockets lie below it
		return err
	}
	bin = filepath.Join(top, "bin")
	if err = os.Chmod(top, 0o755); err != nil { //nolint:gosec // an ordinary user reads it
		return err
	}
	return e2etest.Build("../../..", bin, "./agents/nop", "./agents/oracle", "./environments/docker", "./environments/podman", "./environments/local", "./verifiers/script")
}

// engine is an engine that can be used here.
type engine struct{ e2etest.Engine }

// image has a redis; scripts/engines-for-tests makes it.
const image = "localhost/berth-test/redis:1"

// patience is the longest wait for an engine.
const patience = 5 * time.Minute // it only ends a test that hangs

// find returns the engine with that name, or skips the test with the reason.
func find(t *testing.T, name string) engine {
	t.Helper()
	e2etest.Watch(t, "../../..")
	return engine{e2etest.FindEngine(t, name, image)}
}

// as makes a command that runs as the engine's user.
func (e engine) as(t *testing.T, dir, program string, args ...string) *exec.Cmd {
	t.Helper()
	return e.Command(bounded(t), t, dir, program, args...)
}

// ask runs the engine's own command.
func (e engine) ask(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := e.Ask(bounded(t), t, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// bounded returns a context that ends with the test, or after patience.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// folder makes a folder that belongs to the engine's user.
func (e engine) folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp(top, "t")
	if err != nil {
		t.Fatal(err)
	}
	e2etest.Write(t, dir, files)
	e.Own(t, dir)
	return dir
}

// run runs the experiment of dir and returns the results by agent.
func (e engine) run(t *testing.T, dir string, code int) (map[string]record.Result, map[string]string) {
	t.Helper()
	cmd := e.as(t, dir, filepath.Join(bin, "berth"), "run", ".")
	cmd.Env = append(cmd.Env, "COMPOSE_ANSWER=42")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("run: %v, want exit code %d\n%s", err, code, out.String())
	}
	found, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1", "result.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no results: %v\n%s", err, out.String())
	}
	results, folders := map[string]record.Result{}, map[string]string{}
	for _, f := range found {
		r := e2etest.Result(t, filepath.Dir(f))
		results[r.Cell["agent"]], folders[r.Cell["agent"]] = *r, filepath.Dir(f)
	}
	return results, folders
}
