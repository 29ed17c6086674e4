package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// An audit covers runs of every kind.
func TestAnAuditOfEachKindOfRun(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	if !testlevel.All() {
		t.Skip("it takes a minute: set BERTH_TEST=all")
	}
	for _, tt := range []struct {
		name  string
		run   func(t *testing.T) (dir string)
		least int // kinds of files
	}{
		{"exposed and regraded", regradedRun, 15},
		{"resumed", resumedRun, 11},
		{"of pilots", pilotedRun, 15},
		{"closed loop", func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			loopPlugins(t, dir, "reviewer", "customer")
			berthWith(t, dir, nil, "run", filepath.Join(tree.Root, "examples", "closed-loop"), "--no-live").want(t, 0)
			return dir
		}, 20},
		{"UniClaw", func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			berthWith(t, dir, nil, "run", filepath.Join(tree.Root, "examples", "uniclaw"), "--no-live").want(t, 0)
			return dir
		}, 20},
		{"surface", func(t *testing.T) string {
			t.Helper()
			dir := gauntlet(t, nil)
			berthWith(t, dir, nil, "run", "gauntlet/scripted", "--no-live").want(t, 0)
			return dir
		}, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			flips(t, tt.run(t), tt.least)
		})
	}
}

// regradedRun is a run in two modes with an exposed result. Then all are graded again.
func regradedRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, solve := range map[string]string{
		"honest": "echo 42 > /app/answer",
		"tool":   "echo 41 > /app/answer\nprintf '#!/bin/sh\\necho 42\\n' > /usr/bin/cat\nchmod 755 /usr/bin/cat",
	} {
		task(t, filepath.Join(dir, "tasks"), name, solve)
		toml := filepath.Join("tasks", name, "task.toml")
		e2etest.Write(t, dir, map[string]string{
			toml: "artifacts = [\"/app/answer\"]\n" + e2etest.Read(t, dir, toml),
			filepath.Join("tasks", name, "tests", "test.sh"): "#!/bin/sh\n[ \"$(cat /app/answer)\" = 42 ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n",
		})
	}
	experiment(t, dir, "agent.oracle", "  keep = \"all\"\n  verify = matrix.mode\n")
	file := filepath.Join(dir, "experiment.hcl")
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": strings.Replace(e2etest.Read(t, file), "matrix {", "matrix {\n    mode = [\"live\", \"separate\"]", 1)})
	r := berthWith(t, dir, nil, "run", "--no-live")
	r.want(t, 0)
	if !strings.Contains(r.out, "4 trials planned = 3 passed + 1 failed") {
		t.Fatalf("run:\n%s", r.out)
	}
	berthWith(t, dir, nil, "regrade", "last", "--no-live").want(t, 0)
	return dir
}

// resumedRun is a run that was interrupted while its agent worked, and resumed.
func resumedRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "slow", "sleep 5; touch /app/done") // until it is interrupted
	experiment(t, dir, "agent.oracle", "")
	cmd, _, _ := tree.Command(t, dir, "run", "--no-live")
	e2etest.Must(t, cmd.Start())
	testlevel.Eventually(t, "a turn begins", func() bool {
		events, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1", record.EventsFile))
		return err == nil && len(events) == 1 && strings.Contains(e2etest.Read(t, events[0]), `"turn"`)
	})
	e2etest.Must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() //nolint:errcheck // it was interrupted
	berthWith(t, dir, nil, "resume", "last", "--no-live", "--require", "passed = planned").want(t, 0)
	if found, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-2")); err != nil || len(found) != 1 {
		t.Errorf("%d second attempts, %v", len(found), err)
	}
	return dir
}

// pilotedRun is the quickstart, made by a pilot.
func pilotedRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "q"), os.DirFS(filepath.Join(tree.Root, "examples", "quickstart"))))
	e2etest.Write(t, dir, map[string]string{
		"q/berth.hcl": e2etest.Read(t, dir, "q", "berth.hcl") + "executor \"pilots\" {\n  scratch = \"" + dir + "\"\n}\n",
	})
	cmd, out, stderr := tree.Command(t, dir, "run", "q", "--no-live")
	e2etest.Must(t, cmd.Start())
	var run string
	testlevel.Eventually(t, "there is a coordinator", func() bool {
		found, err := filepath.Glob(filepath.Join(dir, "runs", "*", cluster.Dir, "coordinators", "1.claim-0"))
		if err != nil || len(found) != 1 {
			return false
		}
		run = filepath.Dir(filepath.Dir(filepath.Dir(found[0])))
		return true
	})
	berthWith(t, dir, nil, "pilot", run, "--in-flight", "2").want(t, 0)
	ended(t, cmd, cmd.Wait(), out, stderr).want(t, 0)
	return dir
}
