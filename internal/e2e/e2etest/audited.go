package e2etest

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
)

// makers are the commands that make a run or add to one; true: the run is named.
var makers = map[string]bool{"run": false, "try": false, "replay": false, "resume": true, "regrade": true}

// damaged are the tests that damage records of their runs.
var damaged sync.Map

// Damages says that a test damages the records of its runs, which an audit finds.
func Damages(t *testing.T) {
	t.Helper()
	damaged.Store(t.Name(), true)
}

// Audited audits the run that a command of berth has made, which has ended with a
// code: no test may make a run that its own records contradict.
func Audited(t *testing.T, berth *exec.Cmd, code int) {
	t.Helper()
	args := berth.Args[1:]
	named, makes := makers[append(args, "")[0]]
	if _, known := damaged.Load(t.Name()); known || !makes || code < 0 || code == 2 || t.Context().Err() != nil {
		return // nothing was started, or it was killed
	}
	run, runs := "last", "runs"
	if i := slices.Index(args, "--runs"); i >= 0 {
		runs = args[i+1]
	}
	if !filepath.IsAbs(runs) {
		runs = filepath.Join(berth.Dir, runs)
	}
	made, err := filepath.Glob(filepath.Join(runs, "*", "manifest.jsonl"))
	Must(t, err)
	switch {
	case named:
		run = args[1]
	case len(made) == 0 || len(made) > 1 && slices.Contains(args, "--runs"): // it printed its help, or it is not known which
		return
	case len(made) == 1:
		run = filepath.Dir(made[0])
	}
	cmd := exec.CommandContext(t.Context(), berth.Path, "audit", run, "--json")
	cmd.Dir, cmd.Env, cmd.WaitDelay = berth.Dir, berth.Env, 10*time.Second
	out, err := cmd.Output()
	var page output.Audit
	if wrong := json.Unmarshal(out, &page); wrong != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			out = append(out, e.Stderr...)
		}
		t.Errorf("audit of %s after %q: %v\n%s", run, strings.Join(args, " "), err, out)
	}
	for _, c := range page.Checks {
		for _, p := range c.Problems {
			t.Errorf("after %q the records of the run contradict each other: %s: %s:%d: %s", strings.Join(args, " "), c.Name, p.File, p.Line, p.Text)
		}
	}
}
