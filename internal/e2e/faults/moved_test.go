package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A run that was interrupted is copied with its experiment to another path and,
// where the test may become one, to another user. It is completed there; what was
// done stays as it is, and a changed parameter of a model is refused by its name.
func TestACopiedRunIsResumedByAnotherUser(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t), newSolver(t)
	p.task("spends", "", solveTiny, testTiny)
	s.experiment(p, "repeat = 3\n  limits {\n    in_flight = 1\n  }")
	first := p.start(nil, "run", ".", "--no-live")
	poll(t, "an attempt has ended", first, func() bool {
		m, err := filepath.Glob(filepath.Join(p.dir, "runs", "*"))
		return err == nil && len(m) == 1 && count(t, m[0], "attempt_ended") > 0
	})
	first.signal(syscall.SIGKILL)
	first.wait()
	name := filepath.Base(p.run())
	p.clean()

	uid := os.Getuid()
	if uid == 0 {
		uid = stranger
	}
	q := placeOf(t, uid)
	to := filepath.Join(q.dir, "moved")
	e2etest.Must(t, os.Mkdir(to, 0o755)) //nolint:gosec // as a user makes it
	for _, from := range []string{"berth.hcl", "tasks", "runs"} {
		e2etest.Must(t, os.Rename(filepath.Join(p.dir, from), filepath.Join(to, from))) // nothing is left at the old path
	}
	dir := filepath.Join(to, "runs", name)
	out, err := exec.CommandContext(t.Context(), "chown", "-R", strconv.Itoa(uid), to).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r := q.berth("resume", dir, "--no-live").want(t, 2); !strings.Contains(r.stderr, "start from "+p.dir+", where the run was made") || !strings.Contains(r.stderr, "--experiment PATH") {
		t.Errorf("its tasks are not there: %s", r.stderr)
	}
	before := published(t, dir)

	experiment := filepath.Join(to, "berth.hcl")
	text := read(experiment)
	e2etest.Must(t, os.WriteFile(experiment, []byte(strings.Replace(text, `name = "m1"`, "name = \"m1\"\n  parameters {\n    temperature = 0.5\n  }", 1)), 0o644)) //nolint:gosec // as it was
	if r := q.berth("resume", dir, "--experiment", to, "--no-live").want(t, 2); !strings.Contains(r.stderr, `agent.models.default.parameters: added {"temperature":0.5}`) ||
		strings.Count(r.stderr, "cell (only one): ") != 1 {
		t.Errorf("a changed parameter: %s", r.stderr)
	}
	e2etest.Must(t, os.WriteFile(experiment, []byte(text), 0o644)) //nolint:gosec // as it was

	q.berth("resume", dir, "--experiment", to, "--no-live").want(t, 0)
	after := published(t, dir)
	still(t, before, after)
	show := q.settled(dir)
	if len(before) == 0 || len(after) != 3 || !show.Summary.Complete || show.Summary.Outcomes[record.Passed] != 3 {
		t.Errorf("%d attempts before, %d after: %v", len(before), len(after), show.Summary.Outcomes)
	}
	q.clean()
}
