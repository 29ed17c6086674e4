package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/schemas"
)

func TestTheQuickstart(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	r := berth(t, dir, "run", filepath.Join(tree.Root, "examples", "quickstart"), "--json",
		"--require", "agent=oracle: passed = planned", "--require", "agent=nop: passed = 0", "--require", "agent=terminus: passed = planned")
	r.want(t, 0)
	a := answer[types.Run](t, r, "cli-run")
	if c := a.Summary.Cells; len(c) != 3 || c[0].Passed != 3 || c[1].Passed != 0 || c[2].Passed != 3 || a.Summary.Planned != 9 {
		t.Errorf("summary: %+v", a.Summary)
	}
	n, err := schemas.CheckRun(a.Dir)
	if err != nil || n < 100 {
		t.Errorf("%d texts of the run were checked: %v", n, err)
	}
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	for _, tr := range show.Trials {
		checkTrajectory(t, tr.Attempts[0].Dir)
		one := berth(t, dir, "show", "last", tr.ID[:16], "--json")
		one.want(t, 0)
		answer[types.ShowTrial](t, one, "cli-show-trial")
		full := answer[types.ShowFull](t, berth(t, dir, "show", "last", tr.ID, "1", "--json"), "cli-show-attempt")
		if full.Result == nil || full.Result.Trial != tr.ID || len(full.Files) == 0 {
			t.Errorf("attempt: %+v", full)
		}
	}
	answer[types.Runs](t, berth(t, dir, "show", "--json"), "cli-show-runs")
	again := berth(t, dir, "resume", "last", "--json")
	again.want(t, 0)
	if a = answer[types.Run](t, again, "cli-run"); a.Ran != 0 {
		t.Errorf("a complete run was run again: %d attempts", a.Ran)
	}
	for _, args := range [][]string{{"show"}, {"show", "last"}, {"show", "last", show.Trials[0].ID[:10]}, {"show", "last", show.Trials[0].ID, "1"}} {
		text := berth(t, dir, args...)
		text.want(t, 0)
		if len(text.out) < 40 || text.stderr != "" || strings.Contains(text.out, "\x1b") {
			t.Errorf("%q printed %q and %q", args, text.out, text.stderr)
		}
	}
}

func checkTrajectory(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, record.TrajectoryFile))
	if err != nil {
		t.Error(err)
		return
	}
	if ps := trajectory.Validate(b); len(ps) > 0 {
		t.Errorf("%s: %v", dir, ps)
	}
}

func TestTryRunsOneTaskWithoutAFile(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, dir, "one", "touch /app/done")
	a := answer[types.Run](t, berth(t, dir, "try", "one", "--json"), "cli-run")
	if a.Summary.Outcomes[record.Passed] != 1 || a.Summary.Planned != 1 {
		t.Errorf("oracle: %+v", a.Summary.Outcomes)
	}
	a = answer[types.Run](t, berth(t, dir, "try", "one", "--agent", "nop", "--repeat", "2", "--json"), "cli-run")
	if a.Summary.Outcomes[record.Failed] != 2 {
		t.Errorf("nop: %+v", a.Summary.Outcomes)
	}
	again := berth(t, dir, "resume", "last")
	again.want(t, 0)
	// The final outcome decides --require, not the intermediate ones.
	berth(t, dir, "try", "one", "--agent", "nop", "--require", "passed >= 1").want(t, 1)
}

// If a task's own solution does not pass, the task or the sandbox is wrong: what the
// tests printed says why.
func TestTrySaysWhyAnOracleFails(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, dir, "one", "touch /app/done")
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, "one/tests/test.sh"), []byte("echo installing\nmissing-program\n"), 0o600))
	r := berth(t, dir, "try", "one")
	r.want(t, 1)
	for _, want := range []string{"(verifier_error):\n  ", "\n  installing\n", "missing-program", "--environment docker"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
	if r = berth(t, dir, "try", "one", "--agent", "nop"); strings.Contains(r.out, "installing") {
		t.Errorf("an agent that does nothing:\n%s", r.out)
	}
}

func TestARunThatIsNotCompleteSaysSoAndCanBeResumed(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	for _, name := range []string{"one", "two", "three"} {
		task(t, filepath.Join(dir, "tasks"), name, "sleep 1.2; touch /app/done")
	}
	experiment(t, dir, "agent.oracle", "  limits {\n    in_flight = 1\n    time      = \"1s\"\n  }")
	r := berth(t, dir, "run")
	r.want(t, 3)
	for _, want := range []string{"stopped: the time limit of the run, 1s, is over", "2 not_run", "resume with: berth resume runs/"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
	experiment(t, dir, "agent.oracle", "")
	r = berth(t, dir, "resume", "last", "--experiment", "experiment.hcl")
	r.want(t, 0)
	if !strings.Contains(r.out, "3 trials planned = 3 passed") {
		t.Errorf("resumed: %s", r.out)
	}
}

func TestOtherPluginsAreRefusedOrMarked(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	experiment(t, dir, "agent.oracle", "")
	berth(t, dir, "run").want(t, 0)
	// The same program with another digest, earlier in the search path.
	bin := filepath.Join(dir, "bin")
	b, err := os.ReadFile(e2etest.Plugin(filepath.Join(tree.Root, "bin"), "oracle"))
	e2etest.Must(t, err)
	e2etest.Write(t, bin, map[string]string{"plugins/berth-plugin-oracle": string(b) + "\n"})
	for _, name := range []string{"berth", "berth-sandboxd", "plugins/berth-plugin-local", "plugins/berth-plugin-nop", "plugins/berth-plugin-script", "plugins/libexec"} {
		// -L: a plugin is not looked for behind a link.
		e2etest.Must(t, exec.CommandContext(t.Context(), "cp", "-rpL", filepath.Join(tree.Root, "bin", name), filepath.Join(bin, name)).Run())
	}
	other := func(args ...string) result {
		cmd, out, stderr := tree.Command(t, dir, args...)
		cmd.Path = filepath.Join(bin, "berth")
		return ended(t, cmd, cmd.Run(), out, stderr)
	}
	r := other("resume", "last")
	r.want(t, 2)
	if !strings.Contains(r.stderr, "agent oracle: sha256:") || !strings.Contains(r.stderr, "--accept-drift") {
		t.Errorf("stderr: %s", r.stderr)
	}
	r = other("resume", "last", "--accept-drift")
	r.want(t, 0)
	if !strings.Contains(r.out, "drift accepted: agent oracle") {
		t.Errorf("not marked: %s", r.out)
	}
}
