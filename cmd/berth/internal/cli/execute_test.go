package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
)

// ranIn runs an experiment whose trials all fail, because the environment of the
// tests makes no sandbox. It returns the folder of the run.
func ranIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var v output.Run
	run(t, append([]string{"berth", "run", dir, "--runs", filepath.Join(dir, "runs"), "--json"}, args...)...).must(exit(1), printsJSON("cli-run", &v))
	if v.Summary == nil || !v.Summary.Complete || v.Summary.Outcomes[record.EnvironmentError] != 2 {
		t.Fatalf("run: %+v", v)
	}
	run(t, "berth", "audit", v.Dir).must(exit(0))
	return v.Dir
}

func TestARunWithoutSandboxes(t *testing.T) {
	t.Parallel()
	dir := experiment(t)
	runs := filepath.Join(dir, "runs")
	run(t, "berth", "run", dir, "--runs", runs).must(exit(1), complains("no sandbox in this test"))
	made := ranIn(t, dir)
	run(t, "berth", "show", made).must(exit(0), prints("environment_error"))
	run(t, "berth", "show", made, "test/one--oracle").must(usage("no trial"))
	run(t, "berth", "show", made, "test_one--oracle").must(exit(0), prints("no sandbox in this test"))
	run(t, "berth", "compare", made).must(usage("--force"))
	run(t, "berth", "audit", made).must(exit(0), prints("The record is consistent."))
	run(t, "berth", "audit", made, "--json").must(exit(0), printsJSON("cli-audit", nil))
	run(t, "berth", "note", made, "test_one--oracle", "--label", "odd").must(exit(0))
	run(t, "berth", "audit", made).must(exit(0))
	run(t, "berth", "ctl", made).must(exit(1), complains("is over: there is nothing to control"))
	run(t, "berth", "ctl", made, "pausee").must(usage(`unknown action "pausee"`))
	run(t, "berth", "ctl", made, "cancel").must(usage("cancel needs either a trial or a cell"))
	run(t, "berth", "ctl", made, "set", "in_flight=x").must(usage(`"x" is not a number`))
	run(t, "berth", "pilot", made).must(usage("needs no pilot"))
	run(t, "berth", "replay", made, "--runs", runs).must(usage("replayed"))
	run(t, "berth", "regrade", made).must(usage("no trial can be verified again"))
}

// An expression that is wrong is pointed at in every command that takes one.
func TestAnExpressionThatIsWrong(t *testing.T) {
	t.Parallel()
	dir := ranIn(t, experiment(t))
	for expression, want := range map[string]string{
		"": "the expression is empty", // of a variable that is not set
	} {
		for _, line := range []string{"show", "show RUN --by cell", "report RUN -o OUT", "export RUN --to csv -o OUT", "resume", "regrade"} {
			run(t, append(strings.Fields("berth "+on(t, line, dir)), "--select", expression)...).must(usage(want))
		}
	}
}

// What is complete is not run again unless it is asked for.
func TestARunIsResumed(t *testing.T) {
	t.Parallel()
	dir := experiment(t)
	made := ranIn(t, dir)
	run(t, "berth", "resume", made).must(exit(1))
	var v output.Run
	run(t, "berth", "resume", made, "--again", "environment_error", "--json").must(exit(1), printsJSON("cli-run", &v))
	if v.Ran != 2 {
		t.Errorf("resume ran %d attempts, want 2", v.Ran)
	}
	run(t, "berth", "audit", made).must(exit(0))
	run(t, "berth", "resume", made, "--again", "passed").must(usage("this outcome is a result"))
	write(t, dir, map[string]string{"experiment.hcl": strings.Replace(experimentText, "agent.oracle, ", "", 1)})
	run(t, "berth", "resume", made, "--experiment", dir).must(exit(2))
	if err := os.RemoveAll(filepath.Join(dir, "tasks")); err != nil {
		t.Fatal(err)
	}
	run(t, "berth", "resume", made).must(usage("No such folder: "+filepath.Join(dir, "tasks"), "nothing was started"))
}

// An archive of a run can be audited without the run.
func TestABundleIsAudited(t *testing.T) {
	t.Parallel()
	dir := experiment(t)
	made, file := ranIn(t, dir), filepath.Join(t.TempDir(), "run.tar.zst")
	run(t, "berth", "export", made, "--to", "bundle", "-o", file, "--json").must(exit(0), printsJSON("cli-export", nil))
	run(t, "berth", "audit", file).must(exit(0), prints("digests"))
	run(t, "berth", "audit", file, "--verify", file).must(usage("--verify needs --signers"))
	run(t, "berth", "audit", file, "--sign", file).must(usage("--sign needs -o"))
	run(t, "berth", "audit", file, "--signers", file).must(usage("--signers is for --verify PAGE"))
	run(t, "berth", "audit", file, "--verify", file, "--signers", file).must(exit(1), complains("verify "+file+": its signature is missing"))
}

// An audit finds what was changed after the run.
func TestAChangedRunFailsItsAudit(t *testing.T) {
	t.Parallel()
	dir := experiment(t)
	made := ranIn(t, dir)
	results, err := filepath.Glob(filepath.Join(made, "trials", "*", "attempt-1", "result.json"))
	if err != nil || len(results) != 2 {
		t.Fatalf("%q, %v", results, err)
	}
	b, err := os.ReadFile(results[0])
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(results[0], []byte(strings.Replace(string(b), "environment_error", "passed", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "berth", "audit", made).must(exit(1), prints("the run is not what its records say"))
}

func TestGarbageIsListedAndCollected(t *testing.T) {
	t.Parallel()
	run(t, "berth", "gc", "--dry-run", "--images-within", "1h").must(exit(0))
	run(t, "berth", "gc", "--images-within", "-1h").must(usage("must not be negative: 0 keeps only images in use"))
}

func TestCommandsWithoutARun(t *testing.T) {
	t.Parallel()
	dir := experiment(t)
	run(t, "berth", "--version").must(exit(0), prints("unknown"))
	run(t, "berth").must(exit(0), prints("berth doctor"))
	run(t, "berth", "gateway", dir).must(usage("uses no model: set model = model.<name>"))
	run(t, "berth", "agent", "list").must(exit(0))
	run(t, "berth", "agent", "list", "--json").must(exit(0), printsJSON("cli-agent-list", nil))
	run(t, "berth", "agent", "bundle", "none").must(exit(2), complains("none"))
	run(t, "berth", "plugin", "info", "oracle").must(exit(0), prints("Does nothing."))
	run(t, "berth", "plugin", "lock", dir, "--json").must(exit(0), printsJSON("cli-plugin-lock", nil))
	run(t, "berth", "validate", dir).must(exit(0))
	run(t, "berth", "plugin", "new", filepath.Join(dir, "p"), "--json").must(exit(0), printsJSON("cli-plugin-new", nil))
	run(t, "berth", "plugin", "new", filepath.Join(dir, "p")).must(exit(2), complains("p"))
	run(t, "berth", "plugin", "install", filepath.Join(dir, "none")).must(exit(2), complains("none"))
}
