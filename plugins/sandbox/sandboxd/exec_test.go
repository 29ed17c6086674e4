package sandboxd_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	os.Exit(sandboxtest.Main(m, sandboxtest.Inside{Before: sandboxd.LeaveOff}))
}

func TestCommandSpeaksAndEnds(t *testing.T) {
	t.Parallel()
	shell := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	var out, errs bytes.Buffer
	r, err := shell.Exec(t.Context(), sandbox.Command{
		Argv: []string{"sh", "-c", "echo out; echo err >&2; id; cat; exit 43"}, Stdout: &out, Stderr: &errs,
	})
	if err != nil || r.ExitCode != 43 {
		t.Fatalf("got %+v, %v", r, err)
	}
	t.Logf("%q %q", out.String(), errs.String())
}
