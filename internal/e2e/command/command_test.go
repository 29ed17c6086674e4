package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// When a reader closes its pipe, neither a plan nor a run ends, because a run
// has sandboxes to remove; an answer that could not be written is an error.
func TestReadersThatGoAway(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	berth(t, dir, "init").want(t, 0)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		testlevel.Cannot(t, "there is no /dev/full: mknod -m 666 /dev/full c 1 7", err)
	}
	defer full.Close()
	for _, args := range [][]string{{"plan"}, {"plan", "--json"}} {
		cmd, _, stderr := tree.Command(t, dir, args...)
		cmd.Stdout = full
		if r := ended(t, cmd, cmd.Run(), new(bytes.Buffer), stderr); r.code != 1 || !strings.Contains(r.stderr, "write the result") {
			t.Errorf("%v on a full disk: code %d, %s", args, r.code, r.stderr)
		}
	}
	nobody, gone, err := os.Pipe()
	e2etest.Must(t, err)
	defer gone.Close()
	e2etest.Must(t, nobody.Close())
	cmd, _, _ := tree.Command(t, dir, "run")
	cmd.Stdout, cmd.Stderr = gone, gone
	ended(t, cmd, cmd.Run(), new(bytes.Buffer), new(bytes.Buffer)).want(t, 0)
	if v := answer[types.Runs](t, berth(t, dir, "show", "--json"), "cli-show-runs"); len(v.Runs) != 1 || !v.Runs[0].Complete {
		t.Errorf("runs: %+v", v.Runs)
	}
}

// In an empty folder two commands lead to a run, and a second init changes
// nothing.
func TestInitAndRun(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	v := answer[types.Init](t, berth(t, dir, "init", "--json"), "cli-init")
	if len(v.Files) < 6 {
		t.Errorf("init: %q", v.Files)
	}
	r := answer[types.Run](t, berth(t, dir, "run", "--json"), "cli-run")
	if !r.Summary.Complete || r.Summary.Outcomes[record.Passed] != 1 {
		t.Errorf("run: %+v", r.Summary)
	}
	e2etest.Write(t, dir, map[string]string{"tasks/hello/instruction.md": "mine"})
	berth(t, dir, "init").want(t, 2)
	e2etest.Must(t, os.Remove(filepath.Join(dir, "experiment.hcl")))
	berth(t, dir, "init").want(t, 0)
	if got := e2etest.Read(t, filepath.Join(dir, "tasks/hello/instruction.md")); got != "mine" {
		t.Errorf("init wrote over a task: %q", got)
	}
}

func TestTheKitAsJSON(t *testing.T) {
	t.Parallel()
	kit := answer[types.PluginTest](t, berth(t, t.TempDir(), "plugin", "test", e2etest.Plugin(filepath.Join(tree.Root, "bin"), "nop"), "--json"), "cli-plugin-test")
	if kit.Failed > 0 || kit.Passed == 0 || len(kit.Clauses) != kit.Passed+kit.Skipped {
		t.Errorf("kit: %+v", kit)
	}
}
