package command

import (
	"encoding/csv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/schemas"
)

// A run goes to every format, and through a job of Harbor back to a run with the
// same outcomes, which is compared with the first one.
func TestARunIsExportedAndImported(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	berth(t, dir, "run", filepath.Join(tree.Root, "examples", "quickstart")).want(t, 0)
	for _, f := range []string{"csv", "jsonl", "parquet"} {
		r := berth(t, dir, "export", "last", "--to", f, "-o", "table."+f, "--json")
		r.want(t, 0)
		if e := answer[types.Export](t, r, "cli-export"); e.Rows != 9 || len(e.Notes) != 0 {
			t.Errorf("%s: %+v", f, e)
		}
	}
	if rows, err := csv.NewReader(strings.NewReader(e2etest.Read(t, filepath.Join(dir, "table.csv")))).ReadAll(); err != nil || len(rows) != 10 {
		t.Errorf("%d lines of CSV, %v", len(rows), err)
	}
	some := berth(t, dir, "export", "last", "--to", "csv", "-o", "some.csv", "--select", `cell.agent == "nop" && task matches "isolation"`, "--json")
	some.want(t, 0)
	if e := answer[types.Export](t, some, "cli-export"); e.Rows != 1 {
		t.Errorf("--select: %+v", e)
	}
	reports(t, dir)
	berth(t, dir, "export", "last", "--to", "atif", "-o", "trajectories").want(t, 0)
	berth(t, dir, "export", "last", "--to", "harbor", "-o", "jobs/quick").want(t, 0)
	r := berth(t, dir, "import", "harbor", "jobs/quick", "--json")
	r.want(t, 0)
	in := answer[types.Import](t, r, "cli-import")
	if in.Trials != 9 || len(in.Notes) != 0 {
		t.Errorf("%+v", in)
	}
	runs := e2etest.Found(t, 2, dir, "runs", "*")
	outcomes := func(run string) map[string]record.Outcome {
		shown := berth(t, dir, "show", run, "--json")
		shown.want(t, 0)
		all := map[string]record.Outcome{}
		for _, tr := range answer[types.ShowRun](t, shown, "cli-show-run").Trials {
			all[tr.Task+" "+strings.TrimSuffix(tr.CellKey, " model=scripted")] = tr.Outcome
			if run == in.Dir && tr.Attempts[0].Integrity != record.Unknown {
				t.Errorf("%s: integrity %s", tr.Task, tr.Attempts[0].Integrity)
			}
		}
		return all
	}
	if a, b := outcomes(runs[0]), outcomes(runs[1]); len(a) != 9 || !maps.Equal(a, b) {
		t.Errorf("outcomes\n%v\n%v", a, b)
	}
	both := berth(t, dir, "compare", runs[0], runs[1], "--cell", "*oracle", "--json")
	both.want(t, 0)
	if c := answer[types.Comparison](t, both, "cli-compare"); len(c.Pairs) != 1 || c.Pairs[0].Tasks != 3 || c.Pairs[0].Changed != 0 || c.Pairs[0].Difference != 0 {
		t.Errorf("old and new: %+v", c.Pairs)
	}
	if n, err := schemas.CheckRun(in.Dir); err != nil || n < 20 {
		t.Errorf("the imported run: %d checked, %v", n, err)
	}
}

// reports makes a report of the last run, which was the quickstart.
func reports(t *testing.T, dir string) {
	t.Helper()
	page := berth(t, dir, "report", "last", "-o", "report.html", "--json")
	page.want(t, 0)
	if r := answer[types.Report](t, page, "cli-report"); r.Bytes < 300<<10 || r.Bytes > 2<<20 || !strings.Contains(e2etest.Read(t, filepath.Join(dir, "report.html")), "terminus scores 100.0 points higher than nop") {
		t.Errorf("report: %+v", r)
	}
	berth(t, dir, "report", "last", "-o", "some.html", "--select", `cell.agent == "nop"`).want(t, 0)
	if !strings.Contains(e2etest.Read(t, filepath.Join(dir, "some.html")), "the 3 of 9 trials that --select chooses") {
		t.Error("a report of a choice does not say so")
	}
}

// loads reads a job with the models of Harbor, in Python.
const loads = `
import json, sys
from pathlib import Path
from harbor.models.job.config import JobConfig
from harbor.models.job.lock import TrialLock
from harbor.models.job.result import JobResult, JobStats
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.utils.trajectory_validator import TrajectoryValidator
job = Path(sys.argv[1])
JobConfig.model_validate_json((job / "config.json").read_text())
whole = JobResult.model_validate_json((job / "result.json").read_text())
trials, valid = [], 0
for d in sorted(p for p in job.iterdir() if p.is_dir()):
    trials.append(TrialResult.model_validate_json((d / "result.json").read_text()))
    TrialConfig.model_validate_json((d / "config.json").read_text())
    TrialLock.model_validate_json((d / "lock.json").read_text())
    v = TrajectoryValidator()
    assert v.validate(d / "agent" / "trajectory.json"), v.errors
    valid += 1
ours, theirs = whole.stats.model_dump(mode="json"), JobStats.from_trial_results(trials, n_total_trials=whole.n_total_trials).model_dump(mode="json")
del ours["evals"], theirs["evals"]
assert ours == theirs, (ours, theirs)
print(json.dumps({"trials": len(trials), "valid": valid, "rewards": sum(t.verifier_result.rewards["reward"] for t in trials if t.reward_valid)}))
`

// The real Harbor loads an exported job: its models, and its validator of
// trajectories. It counts the same.
func TestHarborLoadsTheExport(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	found, err := exec.CommandContext(t.Context(), filepath.Join(tree.Root, "scripts", "harbor-for-tests"), "--installed").Output()
	if err != nil {
		t.Skip("the real Harbor is not installed: run scripts/harbor-for-tests as root")
	}
	root := strings.TrimSpace(string(found))
	inside, err := os.MkdirTemp(filepath.Join(root, "tmp"), "berth-export.")
	e2etest.Must(t, err)
	t.Cleanup(func() {
		e2etest.Must(t, os.RemoveAll(inside))
	})
	dir := t.TempDir()
	berth(t, dir, "run", filepath.Join(tree.Root, "examples", "quickstart")).want(t, 0)
	berth(t, dir, "export", "last", "--to", "harbor", "-o", filepath.Join(inside, "jobs", "quick")).want(t, 0)
	jobs, err := filepath.Rel(root, filepath.Join(inside, "jobs"))
	e2etest.Must(t, err)
	harbor := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "chroot", append([]string{
			root, "/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "HOME=/root", "LANG=C.UTF-8", "HARBOR_TELEMETRY=0",
		}, args...)...)
	}
	out, err := harbor("/opt/harbor/bin/python", "-c", loads, "/"+jobs+"/quick").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != `{"trials": 9, "valid": 9, "rewards": 6}` {
		t.Errorf("Harbor says %v\n%s", err, out)
	}
}
