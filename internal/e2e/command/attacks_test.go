package command

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// attack is what its task says.
type attack struct {
	Verifier struct {
		Env map[string]string `toml:"env"`
	} `toml:"verifier"`
}

// chosenAttacks copies the example with the control and a few attacks, or with all of
// them with BERTH_TEST=all, but for those that this machine lacks a program for.
func chosenAttacks(t *testing.T) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	from := filepath.Join(tree.Root, "examples", "attacks")
	e2etest.Write(t, dir, map[string]string{"attacks.hcl": e2etest.Read(t, from, "attacks.hcl")})
	all, err := os.ReadDir(filepath.Join(from, "tasks"))
	e2etest.Must(t, err)
	some := []string{"honest", "r1-reward-before-the-tests", "t6-replaced-tool", "t10-build-file", "h1-artifacts", "n7-limits", "f2-chain", "f5-retry-by-sabotage", "s1-healthcheck", "s2-earlier-tests", "s3-linked-answer", "s4-deleted-tool"}
	for _, e := range all {
		if !testlevel.All() && !slices.Contains(some, e.Name()) || lacks(t, filepath.Join(from, "tasks", e.Name())) {
			continue
		}
		e2etest.Must(t, os.CopyFS(filepath.Join(dir, "tasks", e.Name()), os.DirFS(filepath.Join(from, "tasks", e.Name()))))
		names = append(names, e.Name())
	}
	return dir, names
}

// lacks reports whether the machine lacks a program that the image of a task has.
func lacks(t *testing.T, task string) bool {
	t.Helper()
	text := e2etest.Read(t, task, "environment", "Dockerfile")
	for program, named := range map[string]bool{
		"/usr/bin/python3": strings.Contains(text, "python3"), "git": strings.Contains(text, "git"), "perl": strings.Contains(text, "perl") || filepath.Base(task) == "f7-server-that-agrees",
	} {
		if _, err := exec.LookPath(program); err != nil && named {
			t.Logf("without %s, as %s is missing here", filepath.Base(task), program)
			return true
		}
	}
	return false
}

// The attacks come to what their tasks expect, in each mode. A difference in either
// direction is an error that names the attack and both results.
func TestTheAttackSuiteIsAsDocumented(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir, names := chosenAttacks(t)
	args := []string{"run", "attacks.hcl", "--require", "unexpected = 0", "--json"}
	r := berth(t, dir, args...)
	if a := answer[types.Run](t, r, "cli-run"); r.code != 0 || a.Summary.Planned != 4*len(names) {
		t.Errorf("exit code %d, %d trials of %d attacks: %s", r.code, a.Summary.Planned, len(names), r.stderr)
	}
	all, err := os.ReadDir(filepath.Join(dir, "tasks"))
	e2etest.Must(t, err)
	for _, e := range all {
		if e.Name() != "t10-build-file" {
			e2etest.Must(t, os.RemoveAll(filepath.Join(dir, "tasks", e.Name())))
		}
	}
	file := filepath.Join("tasks", "t10-build-file", "task.toml")
	text := strings.NewReplacer("live = \"passed\"", "live = \"exposed\"", "separate = \"passed\"", "separate = \"failed\"").Replace(e2etest.Read(t, dir, file))
	e2etest.Write(t, dir, map[string]string{file: text})
	r = berth(t, dir, args...)
	r.want(t, 1)
	for _, want := range []string{"passed, expected exposed", "passed, expected failed"} {
		if !strings.Contains(r.out+r.stderr, "t10-build-file: "+want) {
			t.Errorf("no %q in %s%s", want, r.out, r.stderr)
		}
	}
}

// In a harness without guards, which is a shell script in a sandbox, each attack
// succeeds.
func TestAttacksSucceedWithoutGuards(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir, names := chosenAttacks(t)
	e2etest.Write(t, dir, map[string]string{"attacks.hcl": `experiment "unguarded" {
  datasets    = [dataset.unguarded]
  environment = environment.local
  agent       = agent.oracle
}
dataset "unguarded" {
  format = "harbor"
  path   = "./unguarded"
}
environment "local" { plugin = "local" }
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
`})
	for _, name := range names {
		unguarded(t, filepath.Join(dir, "tasks", name), filepath.Join(dir, "unguarded", name))
	}
	r := berth(t, dir, "run", "attacks.hcl", "--json")
	r.want(t, 1) // the tests of one task cannot start
	run := answer[types.Run](t, r, "cli-run").Dir
	found := e2etest.Attempts(t, run)
	if len(found) != len(names) {
		t.Errorf("%d attempts of %d attacks", len(found), len(names))
	}
	for attempt, res := range found {
		if said := e2etest.Read(t, run, "trials", attempt, "artifacts", "logs", "artifacts", "unguarded"); said != "succeeded\n" {
			t.Errorf("%s: %s", res.Task, said)
		}
	}
}

// unguarded writes the task in which the harness without guards runs another task.
func unguarded(t *testing.T, task, to string) {
	t.Helper()
	var a attack
	e2etest.Must(t, toml.Unmarshal([]byte(e2etest.Read(t, task, "task.toml")), &a))
	name := filepath.Base(task)
	how := map[string]string{"n7-limits": "answer", "h1-artifacts": "copied", "f5-retry-by-sabotage": "error"}[name]
	variables := ""
	for key, value := range a.Verifier.Env {
		variables += fmt.Sprintf("export %s='%s'\n", key, value)
	}
	for from, folder := range map[string]string{"environment": "environment", "solution": "solution/attack", "tests": "solution/tests", "steps": "solution/steps"} {
		if _, err := os.Stat(filepath.Join(task, from)); err == nil {
			e2etest.Must(t, os.CopyFS(filepath.Join(to, folder), os.DirFS(filepath.Join(task, from))))
		}
	}
	e2etest.Write(t, to, map[string]string{
		"task.toml": "schema_version = \"1.4\"\n\n[task]\nname = \"" + path.Join("unguarded", name) + "\"\n\n[agent]\ntimeout_sec = 60\n\n" +
			"[verifier]\ntimeout_sec = 30\n\n[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n",
		"instruction.md":      "Run the attack in a harness without guards.\n",
		"tests/test.sh":       "#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n",
		"solution/solve.sh":   e2etest.Read(t, "testdata", "unguarded.sh"),
		"solution/harness.sh": e2etest.Read(t, "testdata", "harness.sh"),
		"solution/variables":  variables, "solution/how": how + "\n",
	})
}
